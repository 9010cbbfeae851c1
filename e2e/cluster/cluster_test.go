package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
	"github.com/warmring/warmring/e2e/ports"
	"github.com/warmring/warmring/engines/sim"
)

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "warmring-cluster-")
	if err != nil {
		return "", err
	}
	folder = dir
	return e2e.Build(context.Background(), dir, os.Getenv("WARMRING_E2E_RACE") != "")
})

var folder string // of the binary

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// fleet is some proxies in front of some simulated engines.
type fleet struct {
	t       *testing.T
	engines map[string]string // TOML by name
	sims    []*sim.Server
	ports   []int // of gossip
	logs    string

	crowds  int
	mu      sync.Mutex
	proxies []*e2e.Warmring // nil = not running
}

func newFleet(t *testing.T, proxies, engines int) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("starts several processes")
	}
	f := &fleet{t: t, engines: map[string]string{}, logs: t.TempDir(), proxies: make([]*e2e.Warmring, proxies)}
	for i := range engines {
		s, err := sim.Start(sim.ServerOptions{Speed: 20, Models: []string{"m"}, AnswerTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		f.sims = append(f.sims, s)
		f.engines[fmt.Sprintf("e%d", i)] = fmt.Sprintf("url = \"http://%s\"\n", s.Addr())
	}
	for range proxies {
		f.ports = append(f.ports, freePort(t))
	}
	f.start(0) // the others have somebody to ask
	var starting sync.WaitGroup
	for i := 1; i < proxies; i++ {
		starting.Go(func() { f.start(i) })
		if i%4 == 0 {
			starting.Wait()
		}
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	f.whole()
	return f
}

// freePort is free for UDP, too.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (f *fleet) start(i int) {
	f.t.Helper()
	program, err := binary()
	if err != nil {
		f.t.Error(err)
		return
	}
	var join []string
	for _, port := range f.ports {
		join = append(join, fmt.Sprintf("\"127.0.0.1:%d\"", port))
	}
	limit := "1m" // there are others to ask
	if len(f.running()) == 0 {
		limit = "500ms"
	}
	w, err := e2e.StartWarmring(f.t.Context(), e2e.Proxy{
		Binary: program, Name: fmt.Sprintf("proxy-%d", i), Logs: f.logs, Engines: f.engines, Settings: "probe.interval = \"500ms\"",
		Tables: fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\njoin = [%s]\nready_limit = \"%s\"\n", f.ports[i], strings.Join(join, ", "), limit),
	})
	if err != nil {
		f.t.Error(err)
		return
	}
	f.t.Cleanup(w.Stop)
	f.mu.Lock()
	f.proxies[i] = w
	f.mu.Unlock()
}

// down takes a proxy out of what clients use.
func (f *fleet) down(i int) *e2e.Warmring {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.proxies[i]
	f.proxies[i] = nil
	return w
}

// any is a proxy picked by chance, as a balancer would.
func (f *fleet) any(random *rand.Rand) *e2e.Warmring {
	for {
		f.mu.Lock()
		w := f.proxies[random.IntN(len(f.proxies))]
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

type view struct {
	Ready   bool
	Digest  string
	Untold  int
	Members []struct{ Name string }
	Totals  struct {
		Lost int `json:"members_lost"`
		Left int `json:"members_left"`
	}
}

func look(w *e2e.Warmring) (v view, err error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(w.Admin + "/api/cluster")
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// patience is for what comes in a moment, however slow and loaded the machine.
const patience = 90 * time.Second

// until waits for all running proxies to agree to a question about their views.
func (f *fleet) until(what string, question func([]view) bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for {
		var views []view
		list := f.running()
		for _, w := range list {
			if v, err := look(w); err == nil {
				views = append(views, v)
			}
		}
		if len(views) == len(list) && question(views) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			f.t.Fatalf("waited in vain for %s: %+v", what, views)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// whole waits until all running proxies see each other.
func (f *fleet) whole() time.Duration {
	f.t.Helper()
	return f.until("all proxies to see each other", func(views []view) bool {
		for _, v := range views {
			if !v.Ready || len(v.Members) != len(views)-1 {
				return false
			}
		}
		return true
	})
}

// settle waits until all running proxies know the same.
func (f *fleet) settle() time.Duration {
	f.t.Helper()
	return f.until("all proxies to know the same", func(views []view) bool {
		for _, v := range views {
			if v.Untold > 0 || v.Digest != views[0].Digest {
				return false
			}
		}
		return true
	})
}

// crowd is some sessions that take turns at any proxy.
type crowd struct {
	f        *fleet
	named    bool
	sessions []*session

	turns, strays, moves, errors atomic.Int64
}

type session struct {
	number  int
	random  *rand.Rand
	header  map[string]string
	history []e2e.Message
	lives   string
}

func (f *fleet) crowd(sessions int, named bool) *crowd {
	c := &crowd{f: f, named: named}
	for n := range sessions {
		s := &session{number: n, random: rand.New(rand.NewPCG(uint64(n), 9))}
		f.crowds++
		s.history = []e2e.Message{{Role: "user", Content: fmt.Sprintf("session %d of crowd %d %s", n, f.crowds, strings.Repeat(fmt.Sprint("w", n, " "), 400))}}
		if named {
			s.header = map[string]string{"X-Session-Id": fmt.Sprint("s", f.crowds)}
		}
		c.sessions = append(c.sessions, s)
	}
	return c
}

// turn is one turn of a session. Turns that a proxy sent elsewhere on purpose are counted apart.
func (c *crowd) turn(s *session) {
	ctx, cancel := context.WithTimeout(c.f.t.Context(), patience)
	defer cancel()
	a, err := e2e.Client{Base: c.f.any(s.random).URL}.Ask(ctx, "/v1/chat/completions", e2e.Body{"model": "m", "messages": s.history}, s.header)
	c.turns.Add(1)
	if err != nil || a.Status != 200 {
		c.errors.Add(1) // its proxy went away under it; a client would ask again
		return
	}
	reason := a.Header.Get("x-warmring-reason")
	if s.lives != "" && a.Engine() != s.lives {
		if reason == "moved" {
			c.moves.Add(1)
		} else {
			c.strays.Add(1)
		}
		c.f.t.Logf("session %d: on %s (%s), it lives on %s", s.number, a.Engine(), reason, s.lives)
	}
	s.lives = a.Engine()
	s.history = append(s.history, e2e.Message{Role: "assistant", Content: "done " + strings.Repeat("a ", 50)}, e2e.Message{Role: "user", Content: fmt.Sprint("next ", len(s.history), strings.Repeat(" n", 100))})
}

// round lets each session take a turn, and waits until all proxies have heard of all of them.
func (c *crowd) round() time.Duration {
	c.f.t.Helper()
	var group sync.WaitGroup
	for _, s := range c.sessions {
		group.Go(func() { c.turn(s) })
	}
	group.Wait()
	return c.f.settle()
}

// race lets sessions take turns one after another, with a short pause, until done is closed. Their next turns and the news of the
// last ones race, and who wins depends on the machine.
func (c *crowd) race(done <-chan struct{}, pause time.Duration) (wait func()) {
	var group sync.WaitGroup
	for _, s := range c.sessions {
		group.Go(func() {
			for {
				c.turn(s)
				select {
				case <-done:
					return
				case <-time.After(time.Duration(s.random.Int64N(int64(pause)))):
				}
			}
		})
	}
	return group.Wait
}

// tell prints what came of the turns since the last telling, and forgets it.
func (c *crowd) tell(what string) (turns, strays, moves, errors int64) {
	turns, strays, moves, errors = c.turns.Swap(0), c.strays.Swap(0), c.moves.Swap(0), c.errors.Swap(0)
	c.f.t.Logf("%s: %d turns, %d not on their session's engine (%.2f %%), %d moved on purpose, %d errors", what, turns, strays, 100*float64(strays)/float64(max(turns, 1)), moves, errors)
	return
}

// figures tells that the machine is quiet enough for what depends on its speed to be asserted, too.
var figures = os.Getenv("WARMRING_FIGURES") != ""

// raced judges turns that raced with the news. at most: so many errors.
func (c *crowd) raced(what string, atMost int) {
	c.f.t.Helper()
	turns, strays, moves, errors := c.tell(what)
	if errors > int64(atMost) {
		c.f.t.Errorf("%s: %d errors", what, errors)
	}
	if figures && float64(strays+moves) > 0.01*float64(turns) {
		c.f.t.Errorf("%s: %d of %d turns were not on their session's engine", what, strays+moves, turns)
	}
}

// heard plays rounds and judges them: whoever has heard of a session sends it to its engine.
func (c *crowd) heard(what string, rounds int) {
	c.f.t.Helper()
	c.f.settle()
	slowest := time.Duration(0)
	for range rounds {
		slowest = max(slowest, c.round())
	}
	turns, strays, moves, errors := c.tell(fmt.Sprintf("%s (all had heard after %v at most)", what, slowest))
	if errors > 0 || float64(strays) > 0.001*float64(turns) || float64(moves) > 0.05*float64(turns) {
		c.f.t.Errorf("%s: of %d turns %d were not on their session's engine, %d moved and %d failed", what, turns, strays, moves, errors)
	}
}

// C093, C094: 3 proxies, 4 engines, 64 sessions of 10 turns, a proxy by chance for each.
func TestTurnsStayOnTheirEngineWhicheverProcessGetsThem(t *testing.T) {
	f := newFleet(t, 3, 4)
	for _, named := range []bool{true, false} {
		f.crowd(64, named).heard(fmt.Sprintf("ids %v", named), 10)
		c := f.crowd(64, named)
		done := make(chan struct{})
		wait := c.race(done, 40*time.Millisecond)
		time.Sleep(2 * time.Second)
		close(done)
		wait()
		c.raced(fmt.Sprintf("ids %v, raced", named), 0)
		c.heard("afterwards", 1)
	}
	for _, w := range f.running() {
		if err := w.Idle(t.Context(), patience); err != nil {
			t.Error(err)
		}
		m, err := e2e.Scrape(t.Context(), w.Admin+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v members, %v merged, met %v, waited for news %v, shed %v, sent %v KB", w.Name, m.Sum("warmring_cluster_members"), m.Sum("warmring_cluster_merged_total"),
			m.Sum("warmring_cluster_met_total"), m.Sum("warmring_news_awaited_total"), m.Sum("warmring_cluster_shed_total"), int(m.Sum("warmring_cluster_packet_bytes_sent_total")/1000))
		if m.Sum("warmring_cluster_members") != 3 || m.Sum("warmring_cluster_merged_total") == 0 {
			t.Error("the metrics do not show the cluster")
		}
	}
}

// A proxy is killed in the middle (kill -9), another stands still for a while (SIGSTOP), and the killed one comes back: sessions
// stay where they live.
func TestProxiesDieStandStillAndComeBack(t *testing.T) {
	f := newFleet(t, 3, 4)
	c := f.crowd(24, true)
	c.heard("before", 2)
	done := make(chan struct{})
	wait := c.race(done, 400*time.Millisecond)
	time.Sleep(time.Second)
	f.down(0).Kill()
	time.Sleep(500 * time.Millisecond)
	f.start(0)
	t.Logf("whole %v after the killed one is back", f.whole())
	still := f.down(2)
	if err := syscall.Kill(still.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Logf("taken for dead after %v", f.until("the stopped one to be taken for dead", func(views []view) bool {
		return len(views) == 2 && len(views[0].Members) == 1 && len(views[1].Members) == 1
	}))
	if err := syscall.Kill(still.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.proxies[2] = still
	f.mu.Unlock()
	t.Logf("whole %v after the stopped one goes on", f.whole())
	close(done)
	wait()
	c.raced("meanwhile", len(c.sessions)) // at most one turn of each session was under way where it broke
	c.heard("afterwards", 2)
}

// All proxies are restarted one after the other while sessions go on. They leave; none is lost.
func TestARolloutLosesNoSession(t *testing.T) {
	f := newFleet(t, 3, 4)
	c := f.crowd(24, true)
	c.heard("before", 2)
	done := make(chan struct{})
	wait := c.race(done, 300*time.Millisecond)
	for i := range 3 {
		time.Sleep(300 * time.Millisecond)
		w := f.down(i)
		if err := w.Terminate(); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(patience); err != nil {
			t.Error(err)
		}
		f.start(i)
		f.whole()
	}
	close(done)
	wait()
	c.raced("meanwhile", 3*len(c.sessions)) // as many as may be on their way to a proxy that ends
	c.heard("afterwards", 2)
	for _, w := range f.running() {
		v, err := look(w)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d left, %d lost", w.Name, v.Totals.Left, v.Totals.Lost)
		if v.Totals.Lost > 0 && figures {
			t.Errorf("%s lost %d members in a rollout", w.Name, v.Totals.Lost)
		}
	}
}

// Thirty processes know each other, and whoever gets a turn knows its session.
func TestThirtyProxiesAreOneCluster(t *testing.T) {
	if os.Getenv("WARMRING_E2E_RACE") != "" {
		t.Skip("thirty processes that look for races are more than a small machine can run")
	}
	began := time.Now()
	f := newFleet(t, 30, 4)
	t.Logf("30 proxies know each other %v after the first was started", time.Since(began))
	c := f.crowd(30, true)
	c.heard("30 proxies", 4)
	sent, lost := 0.0, 0.0
	for _, w := range f.running() {
		m, err := e2e.Scrape(t.Context(), w.Admin+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		sent += m.Sum("warmring_cluster_packet_bytes_sent_total")
		lost += m.Sum("warmring_cluster_members_lost_total")
	}
	t.Logf("each sent %.1f KB/s; %v times a member was taken for lost", sent/30/1000/time.Since(began).Seconds(), lost)
	var ending sync.WaitGroup // at once: one after another takes a while
	for i, w := range f.running() {
		f.down(i)
		ending.Go(w.Stop)
	}
	ending.Wait()
}
