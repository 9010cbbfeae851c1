package deploy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
)

// topology is what compose.yaml describes, as plain processes on the loopback interface: the same commands, the same
// configuration files, other addresses.
type topology struct {
	t       *testing.T
	dir     string
	binary  string
	hosts   map[string]string // "service:port" → loopback address
	env     []string
	names   []string // of the proxies
	proxies map[string]*e2e.Process
	config  string   // of the proxies, before their own addresses
	base    []string // base URLs for clients: the balancer, or the proxies where there is no nginx
	next    atomic.Uint32
}

// Keys for tests only.
const (
	firstKey  = "Zmlyc3QgY2x1c3RlciBrZXkgb2YgMzIgYnl0ZXMhISE="
	secondKey = "c2Vjb25kIGNsdXN0ZXIga2V5IG9mIDMyIGJ5dGVzISE="
)

// binary is the program, built once for all tests.
var binary = sync.OnceValues(func() (string, error) { return e2e.Build(context.Background(), buildDir, false) })

var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "warmring-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(status)
}

func startTopology(t *testing.T) *topology {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	tp := &topology{t: t, dir: t.TempDir(), binary: path, hosts: map[string]string{}, proxies: map[string]*e2e.Process{}}
	tp.env = append(os.Environ(), "WARMRING_CLUSTER_KEY="+firstKey, "WARMRING_CLUSTER_KEY_2="+secondKey, "WARMRING_IDENTITY_SECRET=the secret of all proxies")
	compose := document(t, "compose.yaml")
	for name, service := range table(compose, "services") {
		switch {
		case text(service, "image") != "warmring:dev":
		case len(list(service, "command")) > 0:
			address := tp.listen(name, "8000")
			args := replaced(texts(service, "command"), map[string]string{":8000": address})
			tp.start(name, append([]string{path}, args...)...)
		default:
			for _, port := range []string{"8080", "8081", "7946"} {
				tp.listen(name, port)
			}
			tp.names = append(tp.names, name)
			if file := mountOf(service, "/etc/warmring/warmring.toml"); tp.config == "" {
				tp.config = read(t, file)
			} else if read(t, file) != tp.config {
				t.Errorf("%s reads another file than the other proxies", name)
			}
		}
	}
	for _, name := range tp.names {
		tp.startProxy(name)
	}
	for _, name := range tp.names {
		tp.until(name+" to be ready", func() error { return tp.get(name, "/readyz", nil) })
		tp.until(name+" to know the others", func() error { return tp.knows(name, len(tp.names)) })
		tp.until(name+" to have asked all engines", func() error { return tp.sees(name) })
	}
	tp.startBalancer(compose)
	return tp
}

// listen gives a port of a service a free one here.
func (tp *topology) listen(service, port string) string {
	tp.t.Helper()
	free, err := e2e.FreePort()
	if err != nil {
		tp.t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", free)
	tp.hosts[service+":"+port] = address
	return address
}

func (tp *topology) start(name string, args ...string) *e2e.Process {
	tp.t.Helper()
	p, err := e2e.StartProcess(e2e.Command{Name: name, Args: args, Logs: tp.dir, Env: tp.env})
	if err != nil {
		tp.t.Fatal(err)
	}
	tp.t.Cleanup(func() {
		p.Stop()
		if tp.t.Failed() {
			tp.t.Logf("%s printed last:\n%s", name, p.Tail(5))
		}
	})
	return p
}

// startProxy runs the file of the proxies at a proxy's own addresses.
func (tp *topology) startProxy(name string) {
	tp.t.Helper()
	own := map[string]string{
		`listen = ":8080"`: fmt.Sprintf("listen = %q", tp.hosts[name+":8080"]), `listen = ":8081"`: fmt.Sprintf("listen = %q", tp.hosts[name+":8081"]),
		`bind = "0.0.0.0:7946"`: fmt.Sprintf("bind = %q\nnode = %q", tp.hosts[name+":7946"], name),
		`delay = "5s"`:          `delay = "1s"`, // our balancer asks at once
	}
	for from := range own {
		if !strings.Contains(tp.config, from) {
			tp.t.Fatalf("the file of the proxies has no %s", from)
		}
	}
	file := filepath.Join(tp.dir, name+".toml")
	if err := os.WriteFile(file, []byte(replace(replace(tp.config, own), tp.hosts)), 0o600); err != nil {
		tp.t.Fatal(err)
	}
	tp.proxies[name] = tp.start(name, tp.binary, "serve", "-config", file)
}

// startBalancer runs nginx with the file of compose.yaml, if it is installed.
func (tp *topology) startBalancer(compose any) {
	tp.t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			tp.t.Log("nginx is not installed: clients go round the proxies by themselves")
			for _, name := range tp.names {
				tp.base = append(tp.base, "http://"+tp.hosts[name+":8080"])
			}
			return
		}
	}
	conf := read(tp.t, mountOf(at(compose, "services", "balancer"), "/etc/nginx/nginx.conf"))
	conf = replace(conf, map[string]string{"listen 8080;": "listen " + tp.listen("balancer", "8080") + ";"})
	temporary := ""
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("\n    %s_temp_path %s/nginx-%s;", what, tp.dir, what)
	}
	conf = strings.Replace(replace(conf, tp.hosts), "http {", "http {\n    access_log off;"+temporary, 1)
	file := filepath.Join(tp.dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		tp.t.Fatal(err)
	}
	tp.start("balancer", nginx, "-p", tp.dir, "-c", file, "-g", fmt.Sprintf("daemon off; pid %s/nginx.pid; error_log stderr;", tp.dir))
	url := "http://" + tp.hosts["balancer:8080"]
	tp.base = []string{url}
	tp.until("the balancer", func() error {
		resp, err := http.Get(url + "/v1/models")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
}

func (tp *topology) until(what string, question func() error) {
	tp.t.Helper()
	if err := wait(question); err != nil {
		tp.t.Fatalf("waited for %s: %v", what, err)
	}
}

// wait asks until the answer is nil, or gives the last one: what is waited for comes, however slow the machine.
func wait(question func() error) error {
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := question()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// restart ends a proxy politely, as a rollout does, and starts it with tp.config as it is now.
func (tp *topology) restart(name string) {
	tp.t.Helper()
	p := tp.proxies[name]
	if err := p.Terminate(); err != nil {
		tp.t.Fatal(err)
	}
	if err := p.Wait(40 * time.Second); err != nil {
		tp.t.Errorf("%s was told to end: %v", name, err)
	}
	tp.startProxy(name)
	tp.until(name+" to be ready again", func() error { return tp.get(name, "/readyz", nil) })
	for _, other := range tp.names {
		tp.until(other+" to know all others", func() error { return tp.knows(other, len(tp.names)) })
	}
}

func replace(s string, by map[string]string) string {
	for from, to := range by {
		s = strings.ReplaceAll(s, from, to)
	}
	return s
}

func replaced(list []string, by map[string]string) []string {
	var out []string
	for _, s := range list {
		out = append(out, replace(s, by))
	}
	return out
}

// mountOf is the file on the host that a service sees at a path.
func mountOf(service any, path string) string {
	for _, volume := range texts(service, "volumes") {
		if host, rest, _ := strings.Cut(volume, ":"); strings.TrimSuffix(rest, ":ro") == path {
			return host
		}
	}
	return ""
}
