// Command bench measures warmring and other proxies side by side on one machine: CPU per request, added latency and
// memory (speed), thousands of idle streams (streams), and where sessions go (affinity); and warmring alone with lanes, in
// front of simulated and real engines (lanes). See README.md.
//
// It is one program in several roles: the bench itself, which is also the client, and the fakes, which it starts as
// processes of its own. Everything stays on the loopback interface and is bounded in count and time; only what was
// started is ended.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "fake" {
		os.Exit(runFake(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

// bench is one run of scenarios.
type bench struct {
	peers    []peer
	named    bool // the peers were chosen by name
	rounds   int
	scale    float64
	streams  int
	profiles string
	dir      string
	cores    cores
	sets     sets
	report   report
}

const about = `usage: e2e/bench/run [flags] [speed] [streams] [affinity] [lanes]

Measures the warmring of this source tree and the peers that are installed, side by side. Without a scenario: the first three; lanes
takes minutes, with each real engine that e2e/install has brought.

`

func run(args []string) int {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(fs.Output(), about); fs.PrintDefaults() }
	install := fs.Bool("install", false, "install the peers named by -peers (else nginx, envoy, vllm-router) from their registries first")
	names := fs.String("peers", "", "comma-separated `names` of peers; default: all that are installed, but for litellm")
	builds := fs.String("warmring", "", "comma-separated `name=path` of built binaries to measure instead of this source tree")
	rounds := fs.Int("rounds", 5, "rounds of the speed scenario")
	scale := fs.Float64("scale", 1, "factor on the number of requests of the speed scenario")
	streams := fs.Int("streams", 5000, "streams at once")
	jsonFile := fs.String("json", "", "append each measurement as a JSON line to this `file`")
	profiles := fs.String("profiles", "", "save profiles of warmring in this `folder`: its CPU in one run of each measure, its heap under idle streams")
	accessLog := fs.Bool("access-log", false, "measure warmring once more, as warmring-log, with its line per request")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	b := &bench{rounds: *rounds, scale: *scale, streams: *streams, profiles: *profiles, named: *names != "", cores: divideCores()}
	b.report.out = os.Stdout
	err := b.prepare(*names, *builds, *install, *accessLog, *jsonFile)
	defer os.RemoveAll(b.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	scenarios := fs.Args()
	if len(scenarios) == 0 {
		scenarios = []string{"speed", "streams", "affinity"}
	}
	b.head()
	status := 0
	for _, name := range scenarios {
		var err error
		switch name {
		case "speed":
			err = b.speed()
		case "streams":
			err = b.streamsScenario()
		case "affinity":
			err = b.affinity()
		case "lanes":
			err = b.lanes()
		case "profile":
			err = b.profile()
		default:
			err = errors.New("there is no such scenario; there are speed, streams, affinity, lanes and profile")
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
			status = 1
		}
	}
	return status
}

// prepare finds or builds what is to be measured.
func (b *bench) prepare(names, builds string, install, accessLog bool, jsonFile string) (err error) {
	if b.dir, err = os.MkdirTemp("", "warmring-bench-"); err != nil {
		return err
	}
	if err := pinSelf(b.cores.others); err != nil {
		return err
	}
	if jsonFile != "" {
		f, err := os.OpenFile(jsonFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		b.report.lines = f
	}
	chosen := func(p peer) bool { _, err := p.find(); return err == nil && !p.slow }
	if list := strings.Split(names, ","); names != "" {
		chosen = func(p peer) bool { return slices.Contains(list, p.name) }
		for _, name := range list {
			known := func(p peer) bool { return p.name == name }
			if name != "none" && name != "warmring" && !slices.ContainsFunc(knownPeers(), known) {
				return fmt.Errorf("there is no peer %q", name)
			}
		}
	} else if install {
		chosen = func(p peer) bool {
			return slices.Contains([]string{"nginx", "envoy", "vllm-router", "vllm-router-ca"}, p.name)
		}
	}
	for _, p := range knownPeers() {
		if !chosen(p) {
			continue
		}
		if install {
			if err := p.install(); err != nil {
				return err
			}
		}
		b.peers = append(b.peers, p)
	}
	if builds == "" {
		binary := filepath.Join(b.dir, "warmring")
		if err := buildWarmring(binary); err != nil {
			return err
		}
		builds = "warmring=" + binary
	}
	for _, pair := range strings.Split(builds, ",") {
		name, path, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("-warmring %q: name=path is wanted", pair)
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		b.peers = append(b.peers, warmring(name, path, false))
		if accessLog {
			b.peers = append(b.peers, warmring(name+"-log", path, true))
		}
	}
	return nil
}

// buildWarmring builds the module that this program was started in.
func buildWarmring(to string) error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", to, ".")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %q: %w\n%s", cmd.Dir, err, text)
	}
	return nil
}

// stage makes an empty stage for a scenario.
func (b *bench) stage(name string) (*stage, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return &stage{dir: dir, cores: b.cores}, nil
}

// startPeers starts all peers; those that do not come up are left out, with a word.
func (b *bench) startPeers(s *stage) (list []*up) {
	for _, p := range b.peers {
		u, err := s.startPeer(p)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", p.name, err)
			continue
		}
		list = append(list, u)
	}
	return list
}

func (b *bench) head() {
	pinned := "nothing pinned"
	if len(b.cores.proxy) > 0 {
		pinned = fmt.Sprintf("proxies on core %v, client and fakes on %v", b.cores.proxy, b.cores.others)
	}
	fmt.Fprintf(b.report.out, "%s; %s; load average %s\n", machine(), pinned, loadAverage())
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
