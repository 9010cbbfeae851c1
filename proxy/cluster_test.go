package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// freePort finds a port that is free for TCP and UDP.
func freePort(t testing.TB) int {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// clusterSection is the [cluster] of a proxy on a port that joins others.
func clusterSection(port int, join ...int) string {
	var addresses []string
	for _, p := range join {
		addresses = append(addresses, fmt.Sprintf("\"127.0.0.1:%d\"", p))
	}
	return fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\njoin = [%s]\nready_limit = \"2s\"\nkeys = [\"MDEyMzQ1Njc4OWFiY2RlZg==\"]\n", port, strings.Join(addresses, ", "))
}

// startProxies starts n proxies in one cluster before the same simulated engines.
func startProxies(t testing.TB, n int, engines map[string]string, clustered bool) []*proxyUnderTest {
	t.Helper()
	var ports []int
	for range n {
		ports = append(ports, freePort(t))
	}
	var all []*proxyUnderTest
	for i := range n {
		toml := "listen = \"127.0.0.1:0\"\n"
		if clustered {
			toml += clusterSection(ports[i], ports...)
		}
		for name, url := range engines {
			toml += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n", name, url)
		}
		all = append(all, startProxyTOML(t, toml))
	}
	for _, p := range all {
		eventually(t, "all engines to be ready and all proxies to know each other", func() bool {
			for _, e := range p.fleet.Engines() {
				if placerState(e.State()).String() != "ready" {
					return false
				}
			}
			c := p.cluster.Load()
			return !clustered || c != nil && c.IsReady() && len(c.View().Members) == n-1
		})
	}
	return all
}

func simulatedFleet(t testing.TB, n int) map[string]string {
	t.Helper()
	urls := map[string]string{}
	for i := range n {
		s, err := sim.Start(sim.ServerOptions{Speed: 40, Models: []string{"m"}, AnswerTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		urls[fmt.Sprintf("e%d", i)] = "http://" + s.Addr()
	}
	return urls
}

// traffic lets sessions take turns, each at a proxy picked by chance, and returns how many turns were not on their session's engine.
type traffic struct {
	sessions, turns int
	named           bool
	body            int // words of each message
}

func (tr traffic) run(t testing.TB, proxies []*proxyUnderTest) (turns, strays int64) {
	t.Helper()
	var all, stray atomic.Int64
	var group sync.WaitGroup
	for s := range tr.sessions {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(s), 1))
			history := []string{fmt.Sprintf("session %d %s", s, strings.Repeat(fmt.Sprint("word", s, " "), tr.body))}
			lives := ""
			for turn := range tr.turns {
				p := proxies[random.IntN(len(proxies))]
				var header []string
				if tr.named {
					header = []string{"X-Session-Id", fmt.Sprint("session-", s)}
				}
				got := p.post("/v1/chat/completions", chat(history...), header...)
				if got.status != 200 {
					t.Errorf("session %d turn %d: %d %s", s, turn, got.status, got.body)
					return
				}
				all.Add(1)
				engine := got.header.Get("X-Warmring-Engine")
				if lives == "" {
					lives = engine
				}
				if engine != lives {
					stray.Add(1)
					t.Logf("session %d turn %d went to %s (%s), it lives on %s", s, turn, engine, got.header.Get("X-Warmring-Reason"), lives)
					lives = engine
				}
				history = append(history, "answer "+strings.Repeat("a ", tr.body/4), "next "+strings.Repeat(fmt.Sprint("n", turn, " "), tr.body/2))
			}
		})
	}
	group.Wait()
	return all.Load(), stray.Load()
}

// Issue: 3 proxies, 4 engines, 64 sessions of 10 turns, a proxy by chance for each turn (C093).
func TestSessionsStayOnTheirEngineWhicheverProxyTheirTurnsReach(t *testing.T) {
	proxies := startProxies(t, 3, simulatedFleet(t, 4), true)
	for _, named := range []bool{true, false} {
		turns, strays := traffic{sessions: 64, turns: 10, named: named, body: 400}.run(t, proxies)
		t.Logf("named %v: %d turns, %d strays (%.2f %%)", named, turns, strays, 100*float64(strays)/float64(turns))
		if float64(strays) > 0.001*float64(turns) {
			t.Errorf("named %v: %d of %d turns were not on their session's engine", named, strays, turns)
		}
	}
	var away uint64
	for _, p := range proxies {
		v := p.cluster.Load().View()
		away += v.Away.Totals.Met
		t.Logf("%s: %+v", v.Name, v.Totals)
	}
	if away == 0 {
		t.Error("no session met another proxy")
	}
}

// With no gossip at all the ring says the same everywhere.
func TestProxiesThatCannotTalkNameTheSameHome(t *testing.T) {
	proxies := startProxies(t, 3, simulatedFleet(t, 4), false)
	for s := range 50 {
		homes := map[string]bool{}
		for _, p := range proxies {
			got := p.post("/v1/chat/completions", chat("hello"), "X-Session-Id", fmt.Sprint("s", s), "X-Request-Id", fmt.Sprint("r", s))
			if got.status != 200 {
				t.Fatal(got.body)
			}
			var explained struct {
				Decision struct{ Home string }
			}
			p.admin(t, "/api/explain/"+fmt.Sprint("r", s), &explained)
			homes[explained.Decision.Home] = true
		}
		if len(homes) != 1 {
			t.Errorf("session %d is at home on %v", s, homes)
		}
	}
}

func (p *proxyUnderTest) admin(t testing.TB, path string, into any) string {
	t.Helper()
	resp, err := http.Get(p.adminURL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, body)
		}
	}
	return string(body)
}

func TestADrainAtOneProxyDrainsAtAll(t *testing.T) {
	proxies := startProxies(t, 3, simulatedFleet(t, 3), true)
	resp, err := http.Post(proxies[1].adminURL+"/api/engines/e1/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, p := range proxies {
		eventually(t, "the drain", func() bool { return placerState(p.fleet.ByName("e1").State()).String() == "draining" })
	}
	var view struct {
		Enabled bool
		Ready   bool
		Members []struct {
			Name    string
			Engines int
			Heard   *float64 `json:"heard_seconds_ago"`
		}
	}
	text := proxies[0].admin(t, "/api/cluster", &view)
	if !view.Enabled || !view.Ready || len(view.Members) != 2 || view.Members[0].Engines != 3 {
		t.Errorf("the view is %s", text)
	}
	if n := proxies[0].metric("warmring_cluster_members"); n != "3" {
		t.Errorf("warmring_cluster_members %s", n)
	}
}

// The keepers of a session restart one after the other; it stays where it is.
func TestARollingRestartKeepsBindings(t *testing.T) {
	engines := simulatedFleet(t, 4)
	ports := []int{freePort(t), freePort(t), freePort(t)}
	start := func(i int) *proxyUnderTest {
		toml := "listen = \"127.0.0.1:0\"\n" + clusterSection(ports[i], ports...)
		for name, url := range engines {
			toml += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n", name, url)
		}
		p := startProxyTOML(t, toml)
		eventually(t, "readiness", func() bool {
			resp, err := http.Get(p.adminURL + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == 200
		})
		return p
	}
	proxies := []*proxyUnderTest{start(0), start(1), start(2)}
	lives := map[int]string{}
	ask := func(p *proxyUnderTest, s int) string {
		got := p.post("/v1/chat/completions", chat(fmt.Sprint("hello ", s, strings.Repeat(" word", 300))), "X-Session-Id", fmt.Sprint("s", s))
		if got.status != 200 {
			t.Fatal(got.body)
		}
		return got.header.Get("X-Warmring-Engine")
	}
	for s := range 40 {
		lives[s] = ask(proxies[s%3], s)
	}
	for i := range proxies {
		proxies[i].shutdown()
		proxies[i] = start(i)
	}
	time.Sleep(50 * time.Millisecond)
	for s, engine := range lives {
		for i, p := range proxies {
			if got := ask(p, s); got != engine {
				t.Errorf("session %d is on %s at proxy %d, it lived on %s", s, got, i, engine)
			}
		}
	}
}

// A long prefill came through one proxy; a short turn of the same engine comes through the other. It is let by, and the long one
// loses little.
func TestAShortTurnIsLetByAPrefillOfAnotherProxy(t *testing.T) {
	e, err := sim.Start(sim.ServerOptions{Options: sim.Options{Mode: sim.VLLM, MaxBatchedTokens: 1000, Cost: sim.Cost{Base: 0.002, Prefill: 1e-4, Decode: 1e-4}}, Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	proxies := startProxies(t, 2, map[string]string{"e": "http://" + e.Addr()}, true)
	session := []string{words("warm", 3000)}
	short := func() time.Duration {
		ttft, _, _, err := ask(proxies[1], chatStream(session...), "X-Session-Id", "short")
		if err != nil {
			t.Fatal(err)
		}
		session = append(session, "answer", words("next", 20))
		return ttft
	}
	for i := range 3 { // both know the engine's speed
		short()
		for _, p := range proxies {
			if _, _, _, err := ask(p, chatStream(words(fmt.Sprint("other", i, p.address), 3000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := make(chan time.Duration, 1)
	go func() {
		ttft, _, _, err := ask(proxies[0], chatStream(words("long", 30_000)))
		if err != nil {
			t.Error(err)
		}
		long <- ttft
	}()
	eventually(t, "the prefill to be known", func() bool {
		_, waiting := proxies[1].cluster.Load().Heaviest("e")
		return waiting > 10_000
	})
	time.Sleep(300 * time.Millisecond) // into the prefill of 3 s
	took := short()
	t.Logf("the short turn took %v, the long one %v", took, <-long)
	if took > 1500*time.Millisecond {
		t.Errorf("the short turn waited %v behind another proxy's prefill", took)
	}
	if v := proxies[0].cluster.Load().View().Asks; v.Got == 0 {
		t.Errorf("nobody asked: %+v", v)
	}
}
