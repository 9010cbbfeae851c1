package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

// fleetFile is a configuration with these engines, to start with and to reload.
func fleetFile(extra string, engines ...*fakeEngine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen = \"127.0.0.1:0\"\nprobe.interval = \"200ms\"\n%s\n", extra)
	for _, e := range engines {
		fmt.Fprintf(&b, "[[engine]]\nname = %q\nurl = %q\n%s\n", e.name, e.URL, e.toml)
	}
	return b.String() + "[drain]\ndelay = \"1ms\"\nlimit = \"5s\"\n"
}

// reload gives the proxy another configuration and tells what it says to it.
func (p *proxyUnderTest) reload(file string) error {
	return p.Reload(func() (*config.Config, error) { return config.Parse("test.toml", []byte(file)) })
}

// mustReload also waits until the engines are ready.
func (p *proxyUnderTest) mustReload(file string, engines ...*fakeEngine) {
	p.t.Helper()
	if err := p.reload(file); err != nil {
		p.t.Fatal(err)
	}
	p.ready(engines...)
}

// ready waits until the placer has these engines, all of them ready, and no others.
func (p *proxyUnderTest) ready(engines ...*fakeEngine) {
	p.t.Helper()
	eventually(p.t, "these engines to be ready and no others", func() bool {
		ready := map[string]bool{}
		list := p.placer.Snapshot()
		for _, e := range list {
			ready[e.Name] = e.State == ring.Ready
		}
		for _, e := range engines {
			if !ready[e.name] {
				return false
			}
		}
		return len(list) == len(engines)
	})
}

// C217: 20 streams are open over four engines while one gets another weight and is then taken out. No stream is cut, its own
// ones end in their time, no new turn reaches it, and the sessions of the others find their prefixes warm where they were.
func TestAReloadCutsNoStreamAndForgetsNoPrefix(t *testing.T) {
	next := make(chan struct{})
	engines := fleetOf(t, 4, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") == "" {
			fmt.Fprint(w, `{}`)
			return
		}
		events(w, helloEvent)
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
		events(w, stopEvent, doneEvent)
	})
	p := startProxyTOML(t, fleetFile("", engines...))
	p.ready(engines...)
	text := func(i, turns int) []string {
		all := []string{fmt.Sprint("session ", i, strings.Repeat(" says a lot", 100))}
		for n := range turns {
			all = append(all, "answer", fmt.Sprint("turn ", n))
		}
		return all
	}
	var streams sync.WaitGroup
	homes := make([]string, 20)
	open := map[string]int{}
	for i := range homes {
		homes[i] = engineOf(p.post("/v1/chat/completions", chat(text(i, 0)...), "X-Session-Id", fmt.Sprint("s", i)))
		open[homes[i]]++
		streams.Go(func() {
			got := p.post("/v1/chat/completions", chatStream(text(i, 1)...), "X-Session-Id", fmt.Sprint("s", i), "X-Slow", "1")
			if got.err != nil || got.body != helloEvent+stopEvent+doneEvent || engineOf(got) != homes[i] {
				t.Errorf("stream %d on %s: %v %q, answered by %s", i, homes[i], got.err, got.body, engineOf(got))
			}
		})
	}
	if len(open) != 4 {
		t.Fatalf("not all engines have streams: %v", open)
	}
	eventually(t, "all streams to run", func() bool { return p.metric("warmring_running_decodes") == "20" })

	d := engines[3]
	d.toml = "weight = 2"
	p.mustReload(fleetFile("", engines...), engines...)
	if got := p.metric("warmring_running_decodes"); got != "20" {
		t.Errorf("%s streams after another weight", got)
	}
	p.mustReload(fleetFile("", engines[:3]...), engines[:3]...)
	before := len(d.got())
	for i := range 20 {
		if got := p.post("/v1/chat/completions", chat(fmt.Sprint("new ", i))); got.status != 200 || engineOf(got) == "d" {
			t.Errorf("a new session: %d from %s", got.status, engineOf(got))
		}
	}
	if got := p.operator("GET", "/api/engines"); strings.Count(got.body, `"state": "removed"`) != 1 || p.metric("warmring_engines_leaving") != "1" {
		t.Errorf("an engine that ends its streams is not shown: %s", got.body)
	}
	close(next)
	streams.Wait()
	eventually(t, "the log to tell that the engine is done", func() bool { return strings.Contains(p.log.String(), "its last request has ended") })
	if got := p.metric("warmring_engines_leaving"); got != "0" {
		t.Errorf("%s engines still leave", got)
	}
	for i, home := range homes {
		got := p.post("/v1/chat/completions", chat(text(i, 2)...), "X-Session-Id", fmt.Sprint("s", i))
		reason, warm := got.header.Get("X-Warmring-Reason"), got.header.Get("X-Warmring-Warm")
		switch {
		case got.status != 200:
			t.Errorf("session %d: %d %s", i, got.status, got.body)
		case home == "d" && engineOf(got) == "d":
			t.Errorf("session %d is still on the engine that was taken out", i)
		case home != "d" && (engineOf(got) != home || reason != "bound" || strings.HasPrefix(warm, "0/")):
			t.Errorf("session %d was on %s and is on %s: %s, warm %s", i, home, engineOf(got), reason, warm)
		}
	}
	if after := len(d.got()); after != before {
		t.Errorf("the engine that was taken out got %d requests", after-before)
	}
	if got := p.metric(`warmring_config_reloads_total{result="applied"}`); got != "2" {
		t.Errorf("%s reloads counted", got)
	}
	for _, change := range []string{"engine d weight 1 → 2", "engine d removed"} {
		if !strings.Contains(p.log.String(), change) {
			t.Errorf("the log does not tell %q", change)
		}
	}
}

// C215: fifty reloads between two lists of engines, with requests all the while. Each is answered, no goroutine stays behind,
// and the engines that are out at the end are asked nothing any more, not even for their health.
func TestFiftyReloadsLeaveNothingBehind(t *testing.T) {
	var connections [4]atomic.Int64
	var engines []*fakeEngine
	for i := range connections {
		e := newFakeEngine(t, string(rune('a'+i)), nil, func(s *http.Server) {
			s.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections[i].Add(1) // each probe comes on its own
				}
			}
		})
		engines = append(engines, e)
	}
	a, b, c, d := engines[0], engines[1], engines[2], engines[3]
	lists := [2][]*fakeEngine{{a, b, c}, {a, d}}
	p := startProxyTOML(t, fleetFile("", lists[0]...))
	p.ready(lists[0]...)
	quiet := func() int {
		http.DefaultClient.CloseIdleConnections()
		runtime.GC()
		return runtime.NumGoroutine()
	}
	run := func() {
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for n := range 2 {
			clients.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if got := p.post("/v1/chat/completions", chat(fmt.Sprint("hello ", n, i%7))); got.status != 200 {
						t.Errorf("%d %s", got.status, got.body)
					}
				}
			})
		}
		for i := range 25 {
			for _, list := range [2][]*fakeEngine{lists[1], lists[0]} {
				if err := p.reload(fleetFile(fmt.Sprintf("retry.wait = \"%ds\"", 5+i), list...)); err != nil {
					t.Fatal(err)
				}
			}
		}
		close(stop)
		clients.Wait()
	}
	if err := p.reload(fleetFile("", lists[0]...)); err != nil {
		t.Fatal(err)
	}
	p.ready(lists[0]...)
	before := quiet()
	run()
	p.ready(lists[0]...)
	gone := connections[3].Load()
	probed := p.fleet.ByName("b").Status().Counts.Probes
	eventually(t, "some more rounds of probing", func() bool { return p.fleet.ByName("b").Status().Counts.Probes > probed+6 })
	if asked := connections[3].Load() - gone; asked > 1 { // one may have been under way
		t.Errorf("the engine that is out was asked %d times more", asked)
	}
	eventually(t, fmt.Sprint("goroutines to be as many as before: ", before), func() bool { return quiet() <= before+3 })
	if series := p.metric(`warmring_engine_up{engine="d"}`); series != "" {
		t.Errorf("the engine that is out still has a series: %s", series)
	}
}

// A file that cannot be read, and one that asks for what needs a restart, change nothing at all, and say why by key and line.
func TestABadFileLeavesTheOldOneInForce(t *testing.T) {
	a, b := newFakeEngine(t, "a", nil), newFakeEngine(t, "b", nil)
	p := startProxyTOML(t, fleetFile("", a))
	p.ready(a)
	if err := p.reload(fleetFile("[retry]\nattemps = 2", a, b)); err == nil || !strings.Contains(err.Error(), `test.toml:4:1: unknown key "attemps"`) {
		t.Errorf("a misspelt key: %v", err)
	}
	if got := p.metric("warmring_config_stale"); got != "1" {
		t.Errorf("stale %s", got)
	}
	if err := p.reload(fleetFile("[lanes]\noff = true\n[server]\nmax_body = \"1MB\"", a, b)); err == nil || !strings.Contains(err.Error(), "server.max_body: it is 64MB and cannot become 1MB") {
		t.Errorf("what needs a restart: %v", err)
	}
	if err := p.reload(fleetFile("[identity]\nsources = [\"hedaer:x\"]", a, b)); err == nil || !strings.Contains(err.Error(), "identity.sources") {
		t.Errorf("a source that does not exist: %v", err)
	}
	b.toml = "tls.ca = \"/nowhere.pem\""
	b.URL = strings.Replace(b.URL, "http:", "https:", 1)
	if err := p.reload(fleetFile("[lanes]\noff = true", a, b)); err == nil || !strings.Contains(err.Error(), "/nowhere.pem") {
		t.Errorf("an engine that cannot be made: %v", err)
	}
	if len(p.fleet.Engines()) != 1 || p.settings.Load().Lanes.Off || len(p.upstreams()) != 1 {
		t.Error("part of a bad file is in force")
	}
	if got := p.post("/v1/chat/completions", chat("hi")); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.metric(`warmring_config_reloads_total{result="invalid"}`) + p.metric(`warmring_config_reloads_total{result="refused"}`); got != "13" {
		t.Errorf("invalid and refused: %s", got)
	}
	if log := p.log.String(); !strings.Contains(log, "key=server.max_body") || !strings.Contains(log, "file=test.toml line=") {
		t.Errorf("the log does not say what is wrong and where:\n%s", log)
	}
	if got := p.operator("GET", "/api/config"); !strings.Contains(got.body, `"number": 1`) || !strings.Contains(got.body, "nowhere.pem") {
		t.Errorf("%s", got.body)
	}
	if err := p.reload(fleetFile("[lanes]\noff = true", a)); err != nil || !p.settings.Load().Lanes.Off || p.metric("warmring_config_stale") != "0" {
		t.Errorf("the mended file: %v", err)
	}
	if got := p.operator("GET", "/api/config"); !strings.Contains(got.body, `"number": 2`) || strings.Contains(got.body, "last_reload_error") || !strings.Contains(got.body, p.settings.Load().Digest()) {
		t.Errorf("%s", got.body)
	}
}

// What an engine's table says is in force with the next request: its key, its headers, its models, its address. A request
// under way is not touched.
func TestAnEngineIsDescribedAnew(t *testing.T) {
	next := make(chan struct{})
	a := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			events(w, helloEvent)
			<-next
			events(w, stopEvent, doneEvent)
			return
		}
		fmt.Fprint(w, `{}`)
	})
	a.models = `{"object":"list","data":[{"id":"m","object":"model"},{"id":"n","object":"model"}]}`
	a.toml = "api_key = \"kk-the-old-one\""
	p := startProxyTOML(t, fleetFile("", a))
	p.ready(a)
	key := func() string { all := a.got(); return all[len(all)-1].header.Get("Authorization") }
	stream := later(p, context.Background(), chatStream("hello"), "X-Slow", "1")
	eventually(t, "the stream to run", func() bool { return len(a.got()) == 1 })
	if key() != "Bearer kk-the-old-one" {
		t.Fatal(key())
	}
	a.toml = "api_key = \"kk-the-new-one\"\nheaders = { x-team = \"blue\" }\nmodels = [\"n\"]"
	p.mustReload(fleetFile("models.alias = { nick = \"n\" }", a), a)
	if got := p.post("/v1/chat/completions", chat("hi")); got.status != 404 {
		t.Errorf("a model that is excluded now: %d %s", got.status, got.body)
	}
	if got := p.post("/v1/chat/completions", strings.Replace(chat("hi"), `"m"`, `"nick"`, 1)); got.status != 200 || key() != "Bearer kk-the-new-one" || a.got()[1].header.Get("X-Team") != "blue" {
		t.Errorf("%d %s, key %s", got.status, got.body, key())
	}
	list, err := http.NewRequest("GET", p.url+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.do(list); strings.Contains(got.body, `"m"`) || !strings.Contains(got.body, `"nick"`) {
		t.Errorf("the list of models: %s", got.body)
	}
	moved := newFakeEngine(t, "a", nil)
	p.mustReload(fleetFile("", moved), moved)
	if got := p.post("/v1/chat/completions", chat("hi")); got.status != 200 || len(moved.got()) != 1 || len(a.got()) != 2 {
		t.Errorf("at the new address: %d, %d there, %d at the old one", got.status, len(moved.got()), len(a.got()))
	}
	close(next)
	if got := <-stream; got.err != nil || got.text != helloEvent+stopEvent+doneEvent {
		t.Errorf("the stream from before: %v %q", got.err, got.text)
	}
	if strings.Contains(p.log.String(), "kk-the") {
		t.Error("the log shows a key")
	}
}

// Long prompts are held while the lanes' rules change. Fewer may be held: those that are stay, the next is refused. Lanes
// off: all are sent at once, none twice.
func TestLanesChangeWithRequestsHeld(t *testing.T) {
	e := newLaneEngine(t, "a")
	e.toml = "kind = \"vllm\""
	p := startProxyTOML(t, fleetFile("[lanes]\nborder = 1000", e.fakeEngine))
	p.ready(e.fakeEngine)
	var clients []<-chan reply
	for i := range 4 {
		clients = append(clients, later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 20000)), "X-Session-Id", fmt.Sprint("long", i)))
	}
	wait(t, "one in work", e.long)
	held := func() int { return p.upstreams()["a"].lanes.view().Held }
	eventually(t, "the others to be held", func() bool { return held() == 3 })
	p.mustReload(fleetFile("[lanes]\nborder = 1000\nmax_held = 2", e.fakeEngine), e.fakeEngine)
	if held() != 3 {
		t.Errorf("%d are held after fewer may be", held())
	}
	if got := p.post("/v1/chat/completions", chatStream(words("too many", 20000))); got.status != 429 {
		t.Errorf("one too many: %d", got.status)
	}
	p.mustReload(fleetFile("[lanes]\noff = true", e.fakeEngine), e.fakeEngine)
	for range 3 {
		wait(t, "a held one to be sent", e.long)
	}
	for range clients {
		e.token <- struct{}{}
	}
	for _, client := range clients {
		expectWhole(t, "a long prompt", wait(t, "an answer", client))
	}
	if n := len(e.got()); n != 4 {
		t.Errorf("the engine got %d requests", n)
	}
	p.mustReload(fleetFile("[lanes]\nborder = 1000", e.fakeEngine), e.fakeEngine)
	if v := p.upstreams()["a"].lanes.view(); v.Held+v.InFlight+v.Back != 0 || v.Off {
		t.Errorf("%+v", v)
	}
}

// An engine is taken out while prompts are held for it: they move to another one. What it runs it ends.
func TestHeldRequestsMoveAwayFromAnEngineThatIsTakenOut(t *testing.T) {
	e := newLaneEngine(t, "a")
	e.toml = "kind = \"vllm\""
	b := newFakeEngine(t, "b", func(w http.ResponseWriter, _ *http.Request) { events(w, wholeAnswer) })
	p := startProxyTOML(t, fleetFile("[lanes]\nborder = 1000", e.fakeEngine))
	p.ready(e.fakeEngine)
	var clients []<-chan reply
	for i := range 4 {
		clients = append(clients, later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 20000)), "X-Session-Id", fmt.Sprint("long", i)))
	}
	wait(t, "one in work", e.long)
	lanes := p.upstreams()["a"].lanes
	eventually(t, "the others to be held", func() bool { return lanes.view().Held == 3 })
	p.mustReload(fleetFile("[lanes]\nborder = 1000", e.fakeEngine, b), e.fakeEngine, b)
	p.mustReload(fleetFile("[lanes]\nborder = 1000", b), b)
	eventually(t, "the held ones to reach the other engine", func() bool { return len(b.got()) == 3 })
	e.token <- struct{}{}
	for _, client := range clients {
		expectWhole(t, "a long prompt", wait(t, "an answer", client))
	}
	if n := len(e.got()); n != 1 {
		t.Errorf("the engine that was taken out got %d requests", n)
	}
	eventually(t, "its connections to be closed", func() bool { v := lanes.view(); return v.Held+v.InFlight+v.Decoding == 0 })
}

// A long prompt was being taken back in the very moment in which its engine was taken out: it is not sent there once more.
func TestAPromptThatWasTakenBackMovesAwayToo(t *testing.T) {
	l := newEngineLanes(lane.Options{Border: 1000}, func() int64 { return 1 })
	r := &request{lane: lanePart{wake: make(chan wake, 1)}}
	if v := l.arrive(r, lane.Arrival{ID: 1, Fresh: 20000, Context: 20000}, lane.Facts{PrefillRate: 10000, CanPreempt: true}); v != lane.Go {
		t.Fatal(v)
	}
	l.retire()
	l.preempted(1, -1)
	if w := <-r.lane.wake; w != wakeMove {
		t.Errorf("it is told %d", w)
	}
	l.leave(1)
}

// A turn was placed on an engine in the very moment in which that was taken out: it is placed anew.
func TestATurnPlacedOnAnEngineThatIsJustGone(t *testing.T) {
	a := newFakeEngine(t, "a", nil)
	p := startProxyTOML(t, fleetFile("", a))
	p.ready(a)
	all := p.upstreams()
	p.contacts.Store(&map[string]*upstream{})
	answered := make(chan answer, 1)
	go func() { answered <- p.post("/v1/chat/completions", chat("hi")) }()
	eventually(t, "it to be placed more than once", func() bool { return p.placer.Snapshot()[0].Placed > 1 })
	p.contacts.Store(&all)
	if got := <-answered; got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// A turn that waits because no engine is there goes on when a reload brings one.
func TestAWaitingTurnGoesToAnEngineThatAReloadBrings(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := &fakeEngine{name: "dead", Server: &httptest.Server{URL: "http://" + ln.Addr().String()}}
	_ = ln.Close()
	p := startProxyTOML(t, fleetFile("retry.wait = \"60s\"", dead))
	waiting := later(p, context.Background(), chatStream("is anybody there?"))
	eventually(t, "the turn to wait", func() bool { return p.metric("warmring_waiting_requests") == "1" })
	a := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) { events(w, wholeAnswer) })
	p.mustReload(fleetFile("", a), a)
	expectWhole(t, "the turn", wait(t, "the answer", waiting))
}

// Two proxies are reloaded one after the other: in between each says that they differ, afterwards that they agree. Their keys
// are changed in the same way, without losing each other.
func TestProxiesOfAClusterAreReloadedOneByOne(t *testing.T) {
	engines := fleetOf(t, 3, nil)
	ports := []int{freePort(t), freePort(t)}
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
	file := func(i int, keys string, engines ...*fakeEngine) string {
		return fleetFile("", engines...) + fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\njoin = [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]\nready_limit = \"2s\"\nkeys = [%s]\n", ports[i], ports[0], ports[1], keys)
	}
	var proxies [2]*proxyUnderTest
	for i := range proxies {
		proxies[i] = startProxyTOML(t, file(i, strconv.Quote(one), engines[:2]...))
		proxies[i].ready(engines[:2]...)
	}
	told := func(p *proxyUnderTest) (members int, differs []string) {
		for _, m := range p.cluster.Load().View().Members {
			members++
			differs = append(differs, m.Differs...)
		}
		return members, differs
	}
	agree := func(what string, want bool) {
		t.Helper()
		eventually(t, what, func() bool {
			for _, p := range proxies {
				if n, differs := told(p); n != 1 || (len(differs) == 0) != want {
					return false
				}
			}
			return true
		})
	}
	agree("both to know each other", true)
	proxies[0].mustReload(file(0, strconv.Quote(one), engines...), engines...)
	agree("both to see that they differ", false)
	proxies[1].mustReload(file(1, strconv.Quote(one), engines...), engines...)
	agree("both to see that they agree", true)
	for _, keys := range []string{fmt.Sprintf("%q, %q", one, two), fmt.Sprintf("%q, %q", two, one), strconv.Quote(two)} {
		for i, p := range proxies {
			p.mustReload(file(i, keys, engines...), engines...)
		}
		got := proxies[0].operator("POST", "/api/engines/b/drain")
		if got.status != 200 {
			t.Fatal(got.body)
		}
		eventually(t, "a word under the new keys", func() bool { return proxies[1].fleet.ByName("b").Status().Drained })
		proxies[0].operator("POST", "/api/engines/b/undrain")
		eventually(t, "another word", func() bool { return !proxies[1].fleet.ByName("b").Status().Drained })
	}
	agree("both still to know each other", true)
}
