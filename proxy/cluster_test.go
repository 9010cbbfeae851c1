package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e/ports"
	"github.com/warmring/warmring/engines/sim"
)

// freePort finds a port that is free for TCP and UDP.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
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

// settle waits until all proxies know the same: whatever was placed before, all have heard of it.
func settle(t testing.TB, proxies []*proxyUnderTest) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "all proxies to know the same", func() bool {
		digest := ""
		for _, p := range proxies {
			v := p.cluster.Load().View()
			if v.Untold > 0 || digest != "" && v.Digest != digest {
				return false
			}
			digest = v.Digest
		}
		return true
	})
	return time.Since(began)
}

// traffic lets sessions take turns, each at a proxy picked by chance.
type traffic struct {
	sessions, turns int
	named           bool
	body            int // words of each message

	// together: all sessions take a turn, and the next when all proxies have heard where all of them were placed. Without it
	// each takes its turns as fast as it can, so news and next turn race, and who wins depends on the machine.
	together bool
}

// player is one session of it.
type player struct {
	number  int
	random  *rand.Rand
	history []string
	lives   string
}

// run returns how many turns were taken and how many of them were not on their session's engine, those aside that a proxy moved
// on purpose.
func (tr traffic) run(t testing.TB, proxies []*proxyUnderTest) (turns, strays, moves int64) {
	t.Helper()
	var all, stray, moved atomic.Int64
	take := func(s *player, turn int) bool {
		p := proxies[s.random.IntN(len(proxies))]
		var header []string
		if tr.named {
			header = []string{"X-Session-Id", fmt.Sprint("session-", tr.together, s.number)}
		}
		got := p.post("/v1/chat/completions", chat(s.history...), header...)
		if got.status != 200 {
			t.Errorf("session %d turn %d: %d %s", s.number, turn, got.status, got.body)
			return false
		}
		all.Add(1)
		engine, reason := got.header.Get("X-Warmring-Engine"), got.header.Get("X-Warmring-Reason")
		if s.lives != "" && engine != s.lives {
			if reason == "moved" {
				moved.Add(1)
			} else {
				stray.Add(1)
			}
			t.Logf("session %d turn %d went to %s (%s), it lives on %s", s.number, turn, engine, reason, s.lives)
		}
		s.lives = engine
		s.history = append(s.history, "answer "+strings.Repeat("a ", tr.body/4), "next "+strings.Repeat(fmt.Sprint("n", turn, " "), tr.body/2))
		return true
	}
	var players []*player
	for i := range tr.sessions {
		begin := fmt.Sprintf("session %d %v %s", i, tr.together, strings.Repeat(fmt.Sprint("word", i, " "), tr.body))
		players = append(players, &player{number: i, random: rand.New(rand.NewPCG(uint64(i), 1)), history: []string{begin}})
	}
	rounds, each := 1, tr.turns
	if tr.together {
		rounds, each = tr.turns, 1
	}
	slowest := time.Duration(0)
	for round := range rounds {
		var group sync.WaitGroup
		for _, s := range players {
			group.Go(func() {
				for turn := range each {
					if !take(s, round+turn) {
						return
					}
				}
			})
		}
		group.Wait()
		slowest = max(slowest, settle(t, proxies))
	}
	t.Logf("named %v, together %v: %d turns, %d strays (%.2f %%), %d moved on purpose; all had heard after %v at most", tr.named, tr.together,
		all.Load(), stray.Load(), 100*float64(stray.Load())/float64(all.Load()), moved.Load(), slowest)
	return all.Load(), stray.Load(), moved.Load()
}

// Issue: 3 proxies, 4 engines, 64 sessions of 10 turns, a proxy by chance for each turn (C093). Whoever has heard of a session
// sends it to its engine; as fast as turns can come, nearly always all have heard.
func TestSessionsStayOnTheirEngineWhicheverProxyTheirTurnsReach(t *testing.T) {
	proxies := startProxies(t, 3, simulatedFleet(t, 4), true)
	for _, named := range []bool{true, false} {
		turns, strays, moves := traffic{sessions: 64, turns: 10, named: named, body: 400, together: true}.run(t, proxies)
		if float64(strays) > 0.001*float64(turns) || float64(moves) > 0.05*float64(turns) {
			t.Errorf("named %v: of %d turns %d were not on their session's engine and %d moved", named, turns, strays, moves)
		}
		turns, strays, moves = traffic{sessions: 64, turns: 10, named: named, body: 400}.run(t, proxies)
		if float64(strays+moves) > 0.001*float64(turns) && os.Getenv("WARMRING_FIGURES") != "" {
			t.Errorf("named %v: %d of %d turns were not on their session's engine", named, strays+moves, turns)
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

// C113: the keepers of a session restart one after the other; it stays where it is.
func TestARollingRestartKeepsBindings(t *testing.T) {
	engines := simulatedFleet(t, 4)
	ports := []int{freePort(t), freePort(t), freePort(t)}
	start := func(i int, readyLimit string) *proxyUnderTest {
		toml := "listen = \"127.0.0.1:0\"\n" + strings.Replace(clusterSection(ports[i], ports...), "2s", readyLimit, 1)
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
	proxies := []*proxyUnderTest{start(0, "500ms"), start(1, "1m"), start(2, "1m")}
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
		settle(t, proxies)
		proxies[i].shutdown()
		proxies[i] = start(i, "1m") // there are others to ask
	}
	settle(t, proxies)
	for s, engine := range lives {
		for i, p := range proxies {
			if got := ask(p, s); got != engine {
				t.Errorf("session %d is on %s at proxy %d, it lived on %s", s, got, i, engine)
			}
		}
	}
}
