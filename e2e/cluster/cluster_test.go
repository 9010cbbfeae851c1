package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
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
	for i := range proxies {
		f.start(i)
	}
	f.whole()
	return f
}

// freePort is free for UDP, too.
func freePort(t *testing.T) int {
	t.Helper()
	for range 20 {
		port, err := e2e.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = u.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (f *fleet) start(i int) {
	f.t.Helper()
	program, err := binary()
	if err != nil {
		f.t.Fatal(err)
	}
	var join []string
	for _, port := range f.ports {
		join = append(join, fmt.Sprintf("\"127.0.0.1:%d\"", port))
	}
	w, err := e2e.StartWarmring(f.t.Context(), e2e.Proxy{
		Binary: program, Name: fmt.Sprintf("proxy-%d", i), Logs: f.logs, Engines: f.engines, Settings: "probe.interval = \"500ms\"",
		Tables: fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\njoin = [%s]\nready_limit = \"3s\"\n", f.ports[i], strings.Join(join, ", ")),
	})
	if err != nil {
		f.t.Fatal(err)
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
	Members []struct{ Name string }
}

func look(w *e2e.Warmring) (v view, err error) {
	resp, err := http.Get(w.Admin + "/api/cluster")
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// whole waits until all running proxies see each other.
func (f *fleet) whole() time.Duration {
	f.t.Helper()
	list := f.running()
	began := time.Now()
	for {
		seen := 0
		for _, w := range list {
			if v, err := look(w); err == nil && v.Ready && len(v.Members) == len(list)-1 {
				seen++
			}
		}
		if seen == len(list) {
			return time.Since(began)
		}
		if time.Since(began) > 30*time.Second {
			f.t.Fatalf("%d of %d proxies see all others", seen, len(list))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// score is what came of the sessions' turns.
type score struct{ turns, strays, errors atomic.Int64 }

// play lets sessions take turns at any proxy until they have had so many.
func (f *fleet) play(sessions, turns int, named bool, pause time.Duration) *score {
	var s score
	var group sync.WaitGroup
	for n := range sessions {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 9))
			history := []e2e.Message{{Role: "user", Content: fmt.Sprintf("session %d %s", n, strings.Repeat(fmt.Sprint("w", n, " "), 400))}}
			var header map[string]string
			if named {
				header = map[string]string{"X-Session-Id": fmt.Sprint("s", n)}
			}
			lives := ""
			for turn := range turns {
				ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
				a, err := e2e.Client{Base: f.any(random).URL}.Ask(ctx, "/v1/chat/completions", e2e.Body{"model": "m", "messages": history}, header)
				cancel()
				s.turns.Add(1)
				if err != nil || a.Status != 200 {
					s.errors.Add(1) // its proxy went away under it; a client would ask again
					continue
				}
				if lives != "" && a.Engine() != lives {
					s.strays.Add(1)
					f.t.Logf("session %d turn %d: on %s (%s), it lives on %s", n, turn, a.Engine(), a.Header.Get("x-warmring-reason"), lives)
				}
				lives = a.Engine()
				history = append(history, e2e.Message{Role: "assistant", Content: "done " + strings.Repeat("a ", 50)}, e2e.Message{Role: "user", Content: fmt.Sprint("next ", turn, strings.Repeat(" n", 100))})
				time.Sleep(time.Duration(random.Int64N(int64(pause) + 1)))
			}
		})
	}
	group.Wait()
	return &s
}

func (s *score) check(t *testing.T, share float64) {
	t.Helper()
	t.Logf("%d turns, %d not on their session's engine (%.2f %%), %d errors", s.turns.Load(), s.strays.Load(), 100*float64(s.strays.Load())/float64(s.turns.Load()), s.errors.Load())
	if float64(s.strays.Load()) > share*float64(s.turns.Load()) {
		t.Errorf("%d of %d turns were not on their session's engine", s.strays.Load(), s.turns.Load())
	}
}

// C093, C094: 3 proxies, 4 engines, 64 sessions of 10 turns, a proxy by chance for each.
func TestTurnsStayOnTheirEngineWhicheverProcessGetsThem(t *testing.T) {
	f := newFleet(t, 3, 4)
	for _, named := range []bool{true, false} {
		s := f.play(64, 10, named, 40*time.Millisecond)
		t.Logf("sessions with ids: %v", named)
		s.check(t, 0.001)
		if n := s.errors.Load(); n > 0 {
			t.Errorf("%d errors", n)
		}
	}
	for _, w := range f.running() {
		if err := w.Idle(t.Context(), 5*time.Second); err != nil {
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
	done := make(chan *score, 1)
	go func() { done <- f.play(24, 40, true, 400*time.Millisecond) }()
	time.Sleep(time.Second)
	f.down(0).Kill()
	time.Sleep(time.Second)
	f.start(0)
	t.Logf("whole %v after the killed one is back", f.whole())
	still := f.down(2)
	if err := syscall.Kill(still.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // long enough to be taken for dead
	if err := syscall.Kill(still.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.proxies[2] = still
	f.mu.Unlock()
	t.Logf("whole %v after the stopped one goes on", f.whole())
	s := <-done
	s.check(t, 0.01)
	if n := s.errors.Load(); n > 24 { // at most one turn of each session was under way where it broke
		t.Errorf("%d errors", n)
	}
}

// All proxies are restarted one after the other while sessions go on.
func TestARolloutLosesNoSession(t *testing.T) {
	f := newFleet(t, 3, 4)
	done := make(chan *score, 1)
	go func() { done <- f.play(24, 30, true, 300*time.Millisecond) }()
	for i := range 3 {
		time.Sleep(500 * time.Millisecond)
		w := f.down(i)
		if err := w.Terminate(); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(20 * time.Second); err != nil {
			t.Error(err)
		}
		f.start(i)
		f.whole()
	}
	s := <-done
	s.check(t, 0.01)
	if n := s.errors.Load(); n > 24 {
		t.Errorf("%d errors", n)
	}
}
