package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// conversation is a session with growing turns, asked at whichever proxy.
type conversation struct {
	id    string
	named bool
	said  []string
}

func converse(id string, named bool) *conversation {
	return &conversation{id: id, named: named, said: []string{"session " + id + strings.Repeat(" begins with words of its own "+id, 200)}}
}

// turn asks at p and grows. It returns the engine and why it was chosen.
func (c *conversation) turn(p *proxyUnderTest) (engine, reason string) {
	p.t.Helper()
	var header []string
	if c.named {
		header = []string{"X-Session-Id", c.id}
	}
	got := p.post("/v1/chat/completions", chat(c.said...), header...)
	if got.status != 200 {
		p.t.Fatalf("%s: %d %s", c.id, got.status, got.body)
	}
	c.said = append(c.said, "answer "+strings.Repeat("so it is ", 50), fmt.Sprint("question ", len(c.said)))
	return engineOf(got), got.header.Get("X-Warmring-Reason")
}

// C093: three proxies behind a balancer that goes round, four engines, a session of nine growing turns. All nine are on one
// engine, with gossip and when the proxies cannot talk: the ring answers without any state, gossip only refines it.
func TestNineTurnsBehindARoundRobinBalancer(t *testing.T) {
	for _, clustered := range []bool{true, false} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("gossip %v, id %v", clustered, named), func(t *testing.T) {
				proxies := startProxies(t, 3, simulatedFleet(t, 4), clustered)
				used := map[string]bool{}
				for s := range 8 {
					c := converse(fmt.Sprint("s-7", s), named)
					home, _ := c.turn(proxies[0])
					used[home] = true
					for n := 1; n < 9; n++ {
						if engine, reason := c.turn(proxies[n%3]); engine != home {
							t.Errorf("%s: turn %d on %s (%s), the session lives on %s", c.id, n+1, engine, reason, home)
						}
					}
				}
				if len(used) < 2 {
					t.Errorf("all sessions are on %v: staying there proves nothing", used)
				}
			})
		}
	}
}

// C094: ten sessions live where their first proxy put them, away from their ring's homes. That proxy goes, and another goes on
// with all of them where they are; how old its news of the others is, it shows, and that it is alone, too.
func TestAnotherProxyTakesOverWarm(t *testing.T) {
	fleet := simulatedFleet(t, 4)
	proxies := startProxies(t, 2, fleet, true)
	first, second := proxies[0], proxies[1]
	// The homes of some are out of use while they begin, so that the ring alone would not find them again.
	if got := first.operator("POST", "/api/engines/e0/drain"); got.status != 200 {
		t.Fatal(got.body)
	}
	eventually(t, "both to know of the drain", func() bool { return second.fleet.ByName("e0").State().String() == "draining" })
	var sessions []*conversation
	lives := map[string]string{}
	for i := range 10 {
		c := converse(fmt.Sprint("k", i), true)
		sessions = append(sessions, c)
		c.turn(first)
		lives[c.id], _ = c.turn(first)
	}
	first.operator("POST", "/api/engines/e0/undrain")
	eventually(t, "both to know of its end", func() bool { return second.fleet.ByName("e0").State().String() == "ready" })
	settle(t, proxies)
	age, err := strconv.ParseFloat(second.metric("warmring_cluster_oldest_peer_seconds"), 64)
	if err != nil || age > 30 || second.metric("warmring_cluster_members") != "2" || second.metric("warmring_cluster_alone") != "0" {
		t.Errorf("the last news of the peer is %v s old (%v), %s members, alone %s", age, err, second.metric("warmring_cluster_members"), second.metric("warmring_cluster_alone"))
	}
	first.settled()
	first.shutdown()
	eventually(t, "the other to see that it is alone", func() bool { return second.metric("warmring_cluster_members") == "1" })
	moved, away := 0, 0
	for _, c := range sessions {
		got := second.post("/v1/chat/completions", chat(c.said...), "X-Session-Id", c.id, "X-Request-Id", "take-over-"+c.id)
		if got.status != 200 || engineOf(got) != lives[c.id] {
			moved++
			t.Logf("%s: %d on %s (%s), it lives on %s", c.id, got.status, engineOf(got), got.header.Get("X-Warmring-Reason"), lives[c.id])
		}
		var explained struct{ Decision struct{ Home string } }
		if second.admin(t, "/api/explain/take-over-"+c.id, &explained); explained.Decision.Home != lives[c.id] {
			away++
		}
	}
	if moved > 0 {
		t.Errorf("%d of 10 sessions began anew elsewhere", moved)
	}
	if away == 0 {
		t.Error("all of them live at home, where the ring alone finds them: that proves nothing")
	}
}

// C096: an engine that only one proxy's file has. The other neither sends anything there nor asks for its health, and turns of
// sessions that live there are served by what it has. The proxy that has it stops sending there when it dies. An engine
// that both files have is one, however often it is told of.
func TestAnEngineThatOnlyOnePeerHas(t *testing.T) {
	both, lone := newFakeEngine(t, "e0", nil), newFakeEngine(t, "w9", nil)
	ports := []int{freePort(t), freePort(t)}
	start := func(i int, engines ...*fakeEngine) *proxyUnderTest {
		toml := "listen = \"127.0.0.1:0\"\n" + clusterSection(ports[i], ports...)
		for _, e := range engines {
			toml += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n", e.name, e.URL)
		}
		return startProxyTOML(t, toml)
	}
	a, b := start(0, both, lone), start(1, both)
	for _, p := range []*proxyUnderTest{a, b} {
		eventually(t, "both proxies to be ready", func() bool {
			return p.operator("GET", "/readyz").status == 200 && p.metric("warmring_cluster_members") == "2"
		})
	}
	eventually(t, "all engines to be ready", func() bool {
		return a.fleet.ByName("w9").State().String() == "ready" && a.fleet.ByName("e0").State().String() == "ready" && b.fleet.ByName("e0").State().String() == "ready"
	})
	var there []*conversation
	for i := 0; len(there) < 3; i++ {
		c := converse(fmt.Sprint("s", i), true)
		if engine, _ := c.turn(a); engine == "w9" {
			there = append(there, c)
		}
	}
	settle(t, []*proxyUnderTest{a, b})
	sent := len(lone.got())
	for _, c := range there {
		if engine, _ := c.turn(b); engine != "e0" {
			t.Errorf("%s: the proxy sends to %q, which it does not have", c.id, engine)
		}
	}
	if n := len(lone.got()); n != sent {
		t.Errorf("%d requests reached an engine through a proxy that does not have it", n-sent)
	}
	for p, want := range map[*proxyUnderTest]string{a: "[e0 w9]", b: "[e0]"} {
		var list []struct{ Name string }
		p.admin(t, "/api/engines", &list)
		var names []string
		for _, e := range list {
			names = append(names, e.Name)
		}
		slices.Sort(names)
		if got := fmt.Sprint(names); got != want {
			t.Errorf("it shows the engines %s, its file has %s", got, want)
		}
	}
	lone.CloseClientConnections()
	lone.Close()
	eventually(t, "its death to be seen", func() bool { return a.fleet.ByName("w9").State().String() == "down" })
	for _, c := range there {
		if engine, _ := c.turn(a); engine != "e0" {
			t.Errorf("%s goes on to %s", c.id, engine)
		}
	}
}

// C098: an agent sends a parent and five children at once, before any answer, under one key of its own and with one beginning of
// 8,000 tokens, to two proxies that have had no time to talk. All six meet on one engine.
func TestAParentAndItsChildrenAtTwoProxies(t *testing.T) {
	proxies := startProxies(t, 2, simulatedFleet(t, 4), true)
	for round := range 4 {
		key := fmt.Sprint("family-", round)
		prefix := strings.Repeat(key+" has eight thousand tokens of common ground ", 700)
		var mu sync.Mutex
		on := map[string]int{}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				body := chat(prefix, "yes", fmt.Sprint("member ", i))
				body = strings.Replace(body, `"model":"m",`, fmt.Sprintf(`"model":"m","prompt_cache_key":%q,`, key), 1)
				got := proxies[i%2].post("/v1/chat/completions", body)
				if got.status != http.StatusOK {
					t.Errorf("%d %s", got.status, got.body)
				}
				mu.Lock()
				defer mu.Unlock()
				on[engineOf(got)]++
			})
		}
		all.Wait()
		if len(on) != 1 {
			t.Errorf("round %d: they are on %v", round, on)
		}
		settle(t, proxies)
	}
}
