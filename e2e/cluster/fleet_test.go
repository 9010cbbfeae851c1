package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
	"github.com/warmring/warmring/e2e/ports"
	"github.com/warmring/warmring/engines/sim"
)

// fleet is some proxies in front of some simulated engines.
type fleet struct {
	t       *testing.T
	engines map[string]string // TOML by name
	sims    []*sim.Server
	ports   []int          // of gossip
	join    []string       // addresses that all proxies try
	extra   []string       // further lines of [cluster], by proxy
	env     map[int]string // NAME=value of a proxy's environment
	build   func() (string, error)
	net     *network // between the proxies; nil = nothing is
	logs    string

	crowds  int
	forks   atomic.Int64
	mu      sync.Mutex
	held    map[int]net.PacketConn // on ports of proxies that are not started yet
	proxies []*e2e.Warmring        // nil = not running
	left    map[string]bool        // engines that sessions have reason to leave
}

// described is a fleet that is not started yet.
func described(t *testing.T, proxies, engines int) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("starts several processes")
	}
	f := &fleet{
		t: t, engines: map[string]string{}, logs: t.TempDir(), proxies: make([]*e2e.Warmring, proxies), extra: make([]string, proxies),
		env: map[int]string{}, held: map[int]net.PacketConn{}, left: map[string]bool{}, build: binary,
	}
	for i := range engines {
		f.engine(fmt.Sprintf("e%d", i), 20)
	}
	for i := range proxies {
		f.ports = append(f.ports, 0)
		f.move(i)
		f.join = append(f.join, fmt.Sprintf("127.0.0.1:%d", f.ports[i]))
	}
	return f
}

// move gives a proxy another port to gossip on, which nobody else takes until it starts: with many proxies, one port in a hundred would
// be gone by then.
func (f *fleet) move(i int) {
	f.t.Helper()
	for range 20 {
		port, err := ports.Free()
		if err != nil {
			f.t.Fatal(err)
		}
		hold, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		f.t.Cleanup(func() { _ = hold.Close() })
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ports[i], f.held[i] = port, hold
		return
	}
	f.t.Fatal("found no free port")
}

// release lets a proxy take its port.
func (f *fleet) release(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hold := f.held[i]; hold != nil {
		_ = hold.Close()
		delete(f.held, i)
	}
}

// engine starts a simulated engine of that speed under a name.
func (f *fleet) engine(name string, speed float64) *sim.Server {
	f.t.Helper()
	s, err := sim.Start(sim.ServerOptions{Speed: speed, Models: []string{"m"}, AnswerTokens: 8})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.Close)
	f.sims = append(f.sims, s)
	f.engines[name] = fmt.Sprintf("url = \"http://%s\"\n", s.Addr())
	return s
}

func newFleet(t *testing.T, proxies, engines int) *fleet {
	t.Helper()
	return described(t, proxies, engines).begin()
}

// begin starts all proxies and waits until they see each other.
func (f *fleet) begin() *fleet {
	f.t.Helper()
	f.start(0) // the others have somebody to ask
	var starting sync.WaitGroup
	for i := 1; i < len(f.proxies); i++ {
		starting.Go(func() { f.start(i) })
		if i%4 == 0 {
			starting.Wait()
		}
	}
	starting.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
	f.whole()
	return f
}

func (f *fleet) start(i int) {
	f.t.Helper()
	program, err := f.build()
	if err == nil && f.env[i] != "" {
		program, err = f.wrapped(i, program)
	}
	if err != nil {
		f.t.Error(err)
		return
	}
	limit := "1m" // there are others to ask
	if len(f.running()) == 0 {
		limit = "500ms"
	}
	table := fmt.Sprintf("[cluster]\nnode = \"proxy-%d\"\nbind = \"127.0.0.1:%d\"\njoin = [\"%s\"]\n%s\n", i, f.ports[i], strings.Join(f.join, `", "`), f.extra[i])
	if !strings.Contains(table, "ready_limit") {
		table += fmt.Sprintf("ready_limit = %q\n", limit)
	}
	f.release(i)
	w, err := e2e.StartWarmring(f.t.Context(), e2e.Proxy{
		Binary: program, Name: fmt.Sprintf("proxy-%d", i), Logs: f.logs, Engines: f.engines, Settings: "probe.interval = \"500ms\"", Tables: table,
	})
	if err != nil {
		f.t.Error(err)
		return
	}
	f.t.Cleanup(func() {
		w.Stop()
		f.wellBehaved(w)
	})
	f.up(i, w)
}

// wellBehaved looks for what a proxy says only when something is wrong with its code.
func (f *fleet) wellBehaved(w *e2e.Warmring) {
	text, err := os.ReadFile(w.Log)
	if err != nil {
		f.t.Error(err)
	}
	for _, bad := range []string{"DATA RACE", "panic", "fatal error"} {
		if at := strings.Index(string(text), bad); at >= 0 {
			f.t.Errorf("%s says:\n%.4000s", w.Name, text[at:])
			return
		}
	}
}

// wrapped is the program with something in its environment.
func (f *fleet) wrapped(i int, program string) (string, error) {
	script := filepath.Join(f.logs, fmt.Sprintf("proxy-%d.sh", i))
	return script, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\n%s exec %s \"$@\"\n", f.env[i], program), 0o700)
}

// up gives a proxy to clients.
func (f *fleet) up(i int, w *e2e.Warmring) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proxies[i] = w
}

// down takes a proxy out of what clients use.
func (f *fleet) down(i int) *e2e.Warmring {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.proxies[i]
	f.proxies[i] = nil
	return w
}

// any is a proxy picked by chance, as a balancer would; of the given ones if there are some.
func (f *fleet) any(random *rand.Rand, among []int) *e2e.Warmring {
	for {
		i := random.IntN(len(f.proxies))
		if len(among) > 0 {
			i = among[random.IntN(len(among))]
		}
		f.mu.Lock()
		w := f.proxies[i]
		f.mu.Unlock()
		if w != nil {
			return w
		}
	}
}

func (f *fleet) running() (list []*e2e.Warmring) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.proxies {
		if w != nil {
			list = append(list, w)
		}
	}
	return list
}

// metrics of all running proxies, by name.
func (f *fleet) metrics() map[string]e2e.Metrics {
	f.t.Helper()
	all := map[string]e2e.Metrics{}
	for _, w := range f.running() {
		m, err := e2e.Scrape(f.t.Context(), w.Admin+"/metrics")
		if err != nil {
			f.t.Fatal(err)
		}
		all[w.Name] = m
	}
	return all
}

func names(all map[string]e2e.Metrics) []string { return slices.Sorted(maps.Keys(all)) }

// end stops all proxies at once: one after another takes a while.
func (f *fleet) end() {
	var ending sync.WaitGroup
	for i, w := range f.proxies {
		if f.down(i) != nil {
			ending.Go(w.Stop)
		}
	}
	ending.Wait()
}

type view struct {
	Ready, Alone bool
	Digest       string
	Untold       int
	Strangers    int
	Members      []struct {
		Name    string
		Differs []string
	}
	Totals struct {
		Lost int `json:"members_lost"`
		Left int `json:"members_left"`
	}
}

var looking = &http.Client{Timeout: 10 * time.Second}

func look(w *e2e.Warmring) (v view, err error) {
	resp, err := looking.Get(w.Admin + "/api/cluster")
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}
