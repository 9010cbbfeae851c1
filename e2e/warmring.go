package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Build compiles the product's binary into a folder and answers its path. With race it finds data races and is slower.
// Where WARMRING_E2E_BINARY names one, that one is tested instead.
func Build(ctx context.Context, dir string, race bool) (string, error) {
	if binary := os.Getenv("WARMRING_E2E_BINARY"); binary != "" {
		return filepath.Abs(binary)
	}
	module, err := root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "warmring")
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build warmring: %w\n%s", err, out)
	}
	return binary, nil
}

// Warmring is a running proxy.
type Warmring struct {
	*Process
	URL   string // of the listener for clients
	Admin string // of the admin listener
}

// Proxy describes a proxy to start.
type Proxy struct {
	Binary   string            // what Build answered
	Name     string            // "" = warmring
	Settings string            // TOML keys of the top level, but listen
	Tables   string            // further TOML tables, but [admin] and the engines
	Engines  map[string]string // name → TOML lines of its [[engine]] table, but the name
	Logs     string            // folder for its log and its configuration file
}

// EngineLines are the TOML lines of a real engine's table.
func (e *Engine) EngineLines() string { return fmt.Sprintf("url = %q\nkind = %q\n", e.URL, e.Kind) }

// StartWarmring writes the configuration, starts `warmring serve` on free loopback ports and waits until its admin
// listener says that it is ready and every engine was found, for at most 30 s. The caller must Stop it.
func StartWarmring(ctx context.Context, p Proxy) (*Warmring, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	admin, err := FreePort()
	if err != nil {
		return nil, err
	}
	if p.Name == "" {
		p.Name = "warmring"
	}
	file := filepath.Join(p.Logs, fmt.Sprintf("%s-%d.toml", p.Name, port))
	if err := os.WriteFile(file, []byte(p.text(port, admin)), 0o600); err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", p.Name, err)
	}
	process, err := StartProcess(Command{Name: p.Name, Args: []string{p.Binary, "serve", "-config", file}, Logs: p.Logs})
	if err != nil {
		return nil, err
	}
	w := &Warmring{Process: process, URL: "http://127.0.0.1:" + strconv.Itoa(port), Admin: "http://127.0.0.1:" + strconv.Itoa(admin)}
	err = process.await(ctx, 30*time.Second, func(ctx context.Context) error { return expectOK(ctx, w.Admin+"/readyz") })
	if err != nil {
		process.Stop()
		return nil, err
	}
	return w, nil
}

func (p Proxy) text(port, admin int) string {
	var b strings.Builder
	if !strings.Contains(p.Tables, "[drain]") {
		p.Tables += "\n[drain]\ndelay = \"0s\"\n" // no balancer waits to see that it leaves
	}
	fmt.Fprintf(&b, "listen = \"127.0.0.1:%d\"\n%s\n[admin]\nlisten = \"127.0.0.1:%d\"\n%s\n", port, p.Settings, admin, p.Tables)
	for _, name := range sorted(p.Engines) {
		fmt.Fprintf(&b, "[[engine]]\nname = %q\n%s\n", name, p.Engines[name])
	}
	return b.String()
}

// Gauges that count work in flight: all of them are 0 when nobody asks for anything. A page that lacks one is at fault.
var idleGauges = [...]string{
	"warmring_inflight_requests", "warmring_waiting_requests", "warmring_charged_fresh_tokens",
	"warmring_running_prefills", "warmring_running_decodes", "warmring_held_context_tokens",
}

// Idle waits until every gauge of work in flight is 0, for at most d, and otherwise says which are not.
func (w *Warmring) Idle(ctx context.Context, d time.Duration) error {
	deadline := time.Now().Add(d)
	for {
		m, err := Scrape(ctx, w.Admin+"/metrics")
		if err != nil {
			return err
		}
		var busy []string
		for _, name := range idleGauges {
			switch {
			case !m.Has(name):
				return fmt.Errorf("%s has no metric %s", w.Name, name)
			case m.Sum(name) != 0:
				busy = append(busy, fmt.Sprintf("%s = %v", name, m.Sum(name)))
			}
		}
		if len(busy) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not idle after %v: %s", w.Name, d, strings.Join(busy, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
