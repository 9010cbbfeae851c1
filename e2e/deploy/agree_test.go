package deploy

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/config"
)

// secrets are what the files expect from outside.
func secrets(t testing.TB) {
	t.Setenv("WARMRING_CLUSTER_KEY", firstKey)
	t.Setenv("WARMRING_CLUSTER_KEY_2", secondKey)
	t.Setenv("WARMRING_IDENTITY_SECRET", "the secret of all proxies")
	t.Setenv("ENGINE_API_KEY", "key")
}

func files(t testing.TB, extension string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == extension {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func configuration(t testing.TB, file string) *config.Config {
	t.Helper()
	secrets(t)
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func port(t testing.TB, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatalf("%q: %v", address, err)
	}
	return p
}

// drains is what a proxy may take to end.
func drains(cfg *config.Config) time.Duration {
	return cfg.Drain.Delay.Std() + cfg.Drain.Limit.Std() + 5*time.Second
}

func TestEveryConfigurationIsValid(t *testing.T) {
	all := files(t, ".toml")
	if len(all) < 4 {
		t.Errorf("only %v", all)
	}
	for _, file := range all {
		cfg := configuration(t, file)
		for _, w := range cfg.Warnings() {
			t.Errorf("%s: %s", file, w)
		}
		if cfg.Cluster.Bind != "" && (len(cfg.Cluster.Keys) == 0 || cfg.Identity.Secret.Reveal() == "") {
			t.Errorf("%s: a cluster without secrets", file)
		}
		for _, inside := range []string{firstKey, secondKey} {
			if strings.Contains(read(t, file), inside) {
				t.Errorf("%s has a secret in it", file)
			}
		}
	}
}

func TestTheExamplesOfTheReadmeAreValid(t *testing.T) {
	secrets(t)
	examples := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(examples) == 0 {
		t.Error("no examples")
	}
	for i, example := range examples {
		if _, err := config.Parse(fmt.Sprintf("example %d", i+1), []byte(example[1])); err != nil {
			t.Error(err)
		}
	}
	known := map[string]bool{}
	for _, key := range config.Keys() {
		known[key] = true
	}
	sections := regexp.MustCompile("`((?:admin|cluster|drain|engine|identity|keepalive|lanes|probe|retry|routing|server|timeouts)\\.[a-z_]+)[` ]")
	for _, key := range sections.FindAllStringSubmatch(read(t, "README.md"), -1) {
		if !known[key[1]] {
			t.Errorf("the README names a key %s that does not exist", key[1])
		}
	}
}

func TestTheFilesThatTheReadmeLinksExist(t *testing.T) {
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(read(t, "README.md"), -1) {
		if _, err := os.Stat(link[1]); err != nil {
			t.Error(err)
		}
	}
}

func TestTheComposeFileAgreesWithWhatItMounts(t *testing.T) {
	compose := document(t, "compose.yaml")
	services := table(compose, "services")
	var proxies []string
	for name, service := range services {
		for _, volume := range texts(service, "volumes") {
			host, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(host); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, network := range texts(service, "networks") {
			if _, ok := table(compose, "networks")[network]; !ok {
				t.Errorf("%s: no network %q", name, network)
			}
		}
		if build := at(service, "build"); build != nil {
			if _, err := os.Stat(filepath.Join(text(build, "context"), text(build, "dockerfile"))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(filepath.Join(text(build, "context"), "go.mod")); err != nil {
				t.Errorf("%s is not built from the module: %v", name, err)
			}
		}
		for _, needed := range texts(service, "depends_on") {
			if services[needed] == nil {
				t.Errorf("%s depends on %s, which is not there", name, needed)
			}
		}
		if mountOf(service, "/etc/warmring/warmring.toml") != "" {
			proxies = append(proxies, name)
		}
	}
	if len(proxies) != 3 {
		t.Fatalf("proxies: %v", proxies)
	}
	cfg := configuration(t, "compose/warmring.toml")
	for _, name := range proxies {
		service := services[name]
		if patience, err := time.ParseDuration(text(service, "stop_grace_period")); err != nil || patience < drains(cfg) {
			t.Errorf("%s may take %v to stop, and gets %v (%v)", name, drains(cfg), patience, err)
		}
		for _, publish := range texts(service, "ports") {
			if parts := strings.Split(publish, ":"); len(parts) != 3 || parts[0] != "127.0.0.1" || parts[2] != port(t, cfg.Admin.Listen) {
				t.Errorf("%s publishes %s: only the admin port, on the loopback interface alone", name, publish)
			}
		}
		if !strings.Contains(strings.Join(cfg.Cluster.Join, " "), name+":"+port(t, cfg.Cluster.Bind)) {
			t.Errorf("nobody joins %s: %v", name, cfg.Cluster.Join)
		}
		given(t, "compose/warmring.toml", name, func(variable string) bool { return table(service, "environment")[variable] != nil })
		if !strings.Contains(read(t, "compose/nginx.conf"), "server "+name+":"+port(t, cfg.Listen)+" ") {
			t.Errorf("the balancer does not know %s", name)
		}
	}
	engines := 0
	for _, e := range cfg.Engines {
		service := services[e.Name]
		if service == nil {
			t.Errorf("no service %s", e.Name)
			continue
		}
		engines++
		if command := texts(service, "command"); len(command) != 3 || e.URL != "http://"+e.Name+command[2] {
			t.Errorf("%s runs %v, and is asked at %s", e.Name, command, e.URL)
		}
	}
	if engines != 4 {
		t.Errorf("%d engines", engines)
	}
	conf := read(t, "compose/nginx.conf")
	if limit := fmt.Sprintf("client_max_body_size %dm;", cfg.Server.MaxBody>>20); !strings.Contains(conf, limit) {
		t.Errorf("the balancer has not %s", limit)
	}
	if text(services["agent"], "environment", "BASE_URL") != "http://balancer:8080" || !strings.Contains(conf, "listen 8080;") {
		t.Error("the agent does not ask the balancer")
	}
	if networks := texts(services["agent"], "networks"); len(networks) != 1 || networks[0] != "agents" {
		t.Errorf("the agent sees %v", networks)
	}
}

// given checks that each variable which a configuration file needs is there.
func given(t testing.TB, file, where string, there func(string) bool) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^[^#\n]*?(?:"\$\{([A-Z0-9_]+)\}"|api_key_env = "([A-Z0-9_]+)")`).FindAllStringSubmatch(read(t, file), -1) {
		if variable := m[1] + m[2]; !there(variable) {
			t.Errorf("%s needs %s, which %s does not give", file, variable, where)
		}
	}
}

func TestTheImageIsBuiltByTheModulesOwnGo(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "../../go.mod"))
	if version == nil || !strings.Contains(dockerfile, "ARG GO_VERSION="+version[1]+"\n") {
		t.Errorf("go.mod wants %v, the Dockerfile has %s", version, regexp.MustCompile(`GO_VERSION=\S*`).FindString(dockerfile))
	}
	for _, line := range []string{"FROM scratch", "USER 65532:65532", "CGO_ENABLED=0", "STOPSIGNAL SIGTERM", `ENTRYPOINT ["/warmring"]`} {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("the Dockerfile has no %s", line)
		}
	}
	cfg := configuration(t, "compose/warmring.toml")
	for _, exposed := range []string{port(t, cfg.Listen) + "/tcp", port(t, cfg.Admin.Listen) + "/tcp", port(t, cfg.Cluster.Bind) + "/tcp", port(t, cfg.Cluster.Bind) + "/udp"} {
		if !strings.Contains(dockerfile, exposed) {
			t.Errorf("the Dockerfile does not expose %s", exposed)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^COPY (\S+)`).FindAllStringSubmatch(dockerfile, -1) {
		if strings.HasPrefix(m[1], "--") {
			continue
		}
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Error(err)
		}
	}
}

func TestTheUnitGivesTheProxyTimeToDrain(t *testing.T) {
	unit, cfg := read(t, "systemd/warmring.service"), configuration(t, "systemd/warmring.toml")
	setting := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		if m == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return m[1]
	}
	if patience, err := time.ParseDuration(setting("TimeoutStopSec")); err != nil || patience < drains(cfg) {
		t.Errorf("the proxy may take %v to stop, and gets %v (%v)", drains(cfg), patience, err)
	}
	if files, err := strconv.Atoi(setting("LimitNOFILE")); err != nil || files < 2*cfg.Server.MaxConnections {
		t.Errorf("%d descriptors are too few for %d connections (%v)", files, cfg.Server.MaxConnections, err)
	}
	if !strings.HasSuffix(setting("ExecStart"), "serve -config /etc/warmring/warmring.toml") {
		t.Error("it starts " + setting("ExecStart"))
	}
}
