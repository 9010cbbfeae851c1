package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// steerAt drains an engine at one proxy, or puts it back.
func steerAt(t *testing.T, p *proxyUnderTest, engine, action string) {
	t.Helper()
	resp, err := http.Post(p.adminURL+"/api/engines/"+engine+"/"+action, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("%s at %s: %d", action, engine, resp.StatusCode)
	}
}

// An operator drains an engine at one proxy. All follow, and go on doing so while each of them is restarted, the one that took the call
// among them. When all of them stop at once the word is gone with them, as nothing is written to disk.
func TestADrainOutlivesTheProxyThatTookTheCall(t *testing.T) {
	fleet := simulatedFleet(t, 3)
	ports := []int{freePort(t), freePort(t), freePort(t)}
	start := func(i int) *proxyUnderTest {
		toml := "listen = \"127.0.0.1:0\"\n" + strings.Replace(clusterSection(ports[i], ports...), "2s", "1s", 1)
		for name, url := range fleet {
			toml += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n", name, url)
		}
		return startProxyTOML(t, toml)
	}
	state := func(p *proxyUnderTest, engine string) string {
		return placerState(p.fleet.ByName(engine).State()).String()
	}
	ready := func(p *proxyUnderTest, others int) {
		eventually(t, "readiness", func() bool {
			resp, err := http.Get(p.adminURL + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == 200 && len(p.cluster.Load().View().Members) == others
		})
	}
	all := []*proxyUnderTest{start(0), start(1), start(2)}
	for _, p := range all {
		ready(p, 2)
	}
	everywhere := func(want, when string) {
		t.Helper()
		for _, p := range all {
			eventually(t, want+" "+when, func() bool { return state(p, "e1") == want })
		}
	}
	steerAt(t, all[1], "e1", "drain")
	everywhere("draining", "after the call")
	for _, i := range []int{1, 0, 2} { // the one that took the call first
		settle(t, all)
		all[i].shutdown()
		all[i] = start(i)
		ready(all[i], 2)
		if got := state(all[i], "e1"); got != "draining" {
			t.Errorf("proxy %d is ready after its restart, and e1 is %s", i, got)
		}
		everywhere("draining", "after a restart")
	}
	steerAt(t, all[2], "e1", "undrain")
	everywhere("ready", "after the other word")
	settle(t, all)
	all[0].shutdown()
	all[0] = start(0)
	ready(all[0], 2)
	everywhere("ready", "after another restart")

	steerAt(t, all[0], "e1", "drain")
	everywhere("draining", "once more")
	for _, p := range all {
		p.shutdown()
	}
	for i := range all {
		all[i] = start(i)
	}
	for _, p := range all {
		ready(p, 2)
		if got := state(p, "e1"); got != "ready" {
			t.Errorf("after all were stopped e1 is %s: who keeps the word?", got)
		}
	}
}

// A proxy that was away while the word was given learns it before it is ready; one that was cut off, when the cut heals.
func TestADrainReachesThoseThatWereAway(t *testing.T) {
	fleet := simulatedFleet(t, 2)
	ports := []int{freePort(t), freePort(t)}
	start := func(i int) *proxyUnderTest {
		toml := "listen = \"127.0.0.1:0\"\n" + strings.Replace(clusterSection(ports[i], ports...), "2s", "1m", 1)
		if i == 0 {
			toml = strings.Replace(toml, "1m", "300ms", 1)
		}
		for name, url := range fleet {
			toml += fmt.Sprintf("[[engine]]\nname = %q\nurl = %q\n", name, url)
		}
		return startProxyTOML(t, toml)
	}
	first := start(0)
	eventually(t, "the first to be ready", func() bool { c := first.cluster.Load(); return c != nil && c.IsReady() })
	steerAt(t, first, "e0", "drain")
	late := start(1)
	eventually(t, "the late one to be ready", func() bool {
		resp, err := http.Get(late.adminURL + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	if got := placerState(late.fleet.ByName("e0").State()).String(); got != "draining" {
		t.Errorf("it is ready, and e0 is %s", got)
	}
}
