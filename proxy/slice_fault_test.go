package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// twoSliceEngines are two engines before which sessions are warm, so that each one has short turns of its own and slices.
func twoSliceEngines(t *testing.T, settings string) (*proxyUnderTest, map[string]*sliceEngine) {
	t.Helper()
	both := map[string]*sliceEngine{"a": newSliceEngine(t, "a"), "b": newSliceEngine(t, "b")}
	p := startProxy(t, sliceSettings+"\n"+settings, both["a"].fakeEngine, both["b"].fakeEngine)
	seen := map[string]bool{}
	for i := 0; len(seen) < 2; i++ {
		got := wait(t, "a short turn", later(p, context.Background(), chatStream(fmt.Sprint("hi", i)), "X-Session-Id", fmt.Sprint("short", i), "X-Quick", "1"))
		expectWhole(t, "a short turn", got)
		seen[got.header.Get("X-Warmring-Engine")] = true
	}
	return p, both
}

// firstSlice waits for a slice at one of two engines.
func firstSlice(t *testing.T, both map[string]*sliceEngine) (at, other *sliceEngine, run sliceRun) {
	t.Helper()
	select {
	case run = <-both["a"].came:
		return both["a"], both["b"], run
	case run = <-both["b"].came:
		return both["b"], both["a"], run
	case <-time.After(20 * time.Second):
		t.Fatal("no slice came")
	}
	return nil, nil, run
}

// slicedAt is a long prompt of which a slice runs at one of two engines.
type slicedAt struct {
	at, other *sliceEngine
	run       sliceRun
	long      <-chan reply
}

// sliceAt sends a long prompt to two engines, of which the one that gets its first slice keeps that.
func sliceAt(t *testing.T, settings, body string) (*proxyUnderTest, slicedAt) {
	t.Helper()
	p, both := twoSliceEngines(t, settings)
	for _, e := range both {
		e.set(func() { e.held = true })
	}
	s := slicedAt{long: later(p, context.Background(), body, "X-Session-Id", "long")}
	s.at, s.other, s.run = firstSlice(t, both)
	s.other.set(func() { s.other.held = false })
	return p, s
}

// hold ends the slice while short turns wait, so that the long prompt is between two slices. The short turns are to be read.
func (s *slicedAt) hold(t *testing.T, p *proxyUnderTest) (shorts []<-chan reply) {
	t.Helper()
	view := func() lane.View { return p.upstreams()[s.at.name].lanes.view() }
	time.Sleep(150 * time.Millisecond) // it runs, which earns the right to wait
	for i := 0; view().Waiting == 0; i++ {
		shorts = append(shorts, later(p, context.Background(), chatStream(fmt.Sprint("turn", i)), "X-Session-Id", fmt.Sprint("short", i)))
		time.Sleep(20 * time.Millisecond)
	}
	close(s.run.done)
	eventually(t, "the long one to be in the proxy", func() bool { return view().Back == 1 })
	return shorts
}

// C142: the engine dies during a slice. Another one answers, and has the body whole and once.
func TestAnEngineDiesDuringASlice(t *testing.T) {
	body := chatStream(words("long", 20_000))
	p, st := sliceAt(t, "", body)
	died, other, long := st.at, st.other, st.long
	died.Listener.Close()
	died.CloseClientConnections()
	got := wait(t, "the long answer", long)
	expectWhole(t, "the client", got)
	noSecret(t, got)
	if _, wholes, _ := died.saw(); len(wholes) != 0 || got.header.Get("X-Warmring-Engine") != other.name {
		t.Errorf("%d whole prompts at the dead engine, the answer is from %s", len(wholes), got.header.Get("X-Warmring-Engine"))
	}
	other.expectOnce(t, body, 0)
	if n := p.metric(fmt.Sprintf(`warmring_slice_failures_total{engine=%q}`, died.name)); n != "1" {
		t.Errorf("%s failures counted", n)
	}
}

// The engine dies between two slices.
func TestAnEngineDiesBetweenTwoSlices(t *testing.T) {
	body := chatStream(words("long", 20_000))
	p, st := sliceAt(t, "", body)
	died, other, long := st.at, st.other, st.long
	shorts := st.hold(t, p)
	died.Listener.Close()
	died.CloseClientConnections()
	close(other.short)
	got := wait(t, "the long answer", long)
	expectWhole(t, "the client", got)
	if got.header.Get("X-Warmring-Engine") != other.name || got.header.Get("X-Warmring-Slices") == "" {
		t.Errorf("answered with %v", got.header)
	}
	other.expectOnce(t, body, 0)
	for _, short := range shorts {
		expectWhole(t, "a short turn", wait(t, "a short turn", short))
	}
}

// What an engine says to a slice, it may not say to the request, which it is sent next, and whose answer alone is the client's:
// there are engines that fail at answers which are not streamed, and slices are none.
func TestAnEngineThatFailsAtSlicesGetsTheRequestItself(t *testing.T) {
	for _, status := range []int{429, 500, 501, 503, 504} {
		for _, attempts := range []int{1, 3} {
			e := newSliceEngine(t, "a")
			e.refuses = status
			p := startProxy(t, fmt.Sprint(sliceSettings, "\nretry.attempts = ", attempts), e.fakeEngine)
			contended(t, p)
			body := chatStream(words("long", 20_000))
			got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long"))
			expectWhole(t, fmt.Sprint("after ", status, " the client"), got)
			noSecret(t, got)
			e.expectOnce(t, body, 1)
			if slices, _, _ := e.saw(); len(slices) != 1 || p.metric(`warmring_slice_failures_total{engine="a"}`) != "1" {
				t.Errorf("%d: %d slices, %s failures counted", status, len(slices), p.metric(`warmring_slice_failures_total{engine="a"}`))
			}
			if x, ok := p.recent.explain(got.header.Get("X-Request-Id")); !ok || x.Attempts != 1 {
				t.Errorf("%d: %d attempts", status, x.Attempts)
			}
			p.settled()
		}
	}
}

// The same where the connection breaks under a slice: the only engine there is gets the request itself, and where there is
// another one that gets it, a slice being no attempt of the request.
func TestAConnectionBreaksUnderASlice(t *testing.T) {
	breaks := func(e *sliceEngine) {
		plain := e.answer
		e.answer = func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), `"max_tokens":1`) {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(strings.NewReader(string(b)))
			plain(w, r)
		}
	}
	e := newSliceEngine(t, "a")
	breaks(e)
	p := startProxy(t, sliceSettings+"\nretry.attempts = 1", e.fakeEngine)
	contended(t, p)
	body := chatStream(words("long", 20_000))
	got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long"))
	expectWhole(t, "the client", got)
	e.expectOnce(t, body, 0)
	if n := p.metric(`warmring_slice_failures_total{engine="a"}`); n != "1" {
		t.Errorf("%s failures counted", n)
	}
	p.settled()

	p, st := sliceAt(t, "retry.attempts = 1", body)
	died, other, long := st.at, st.other, st.long
	died.Listener.Close()
	died.CloseClientConnections()
	expectWhole(t, "the other client", wait(t, "the long answer", long))
	other.expectOnce(t, body, 0)
	p.settled()
}

// An engine that cannot be reached any more when a slice is to go to it: the request goes elsewhere, and that was no attempt.
func TestAnEngineIsGoneBeforeASlice(t *testing.T) {
	body := chatStream(words("long", 20_000))
	p, st := sliceAt(t, "retry.attempts = 1", body)
	died, other, long := st.at, st.other, st.long
	died.Listener.Close()
	died.Config.SetKeepAlivesEnabled(false) // its connections end with the answer
	close(st.run.done)
	expectWhole(t, "the client", wait(t, "the long answer", long))
	other.expectOnce(t, body, 0)
	p.settled()
}

// A client leaves during a slice: the engine is told at once, and nothing is held or charged any more.
func TestAClientLeavesDuringASlice(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	contended(t, p)
	e.set(func() { e.held = true })
	ctx, leave := context.WithCancel(context.Background())
	long := later(p, ctx, chatStream(words("long", 20_000)), "X-Session-Id", "long")
	run := wait(t, "a slice", e.came)
	leave()
	within(t, 10*time.Second, "the slice to be stopped at the engine", run.gone)
	if got := wait(t, "the client to be gone", long); got.err == nil {
		t.Errorf("it had an answer: %.200q", got.text)
	}
	p.settled()
	if v := p.upstreams()["a"].lanes.view(); v.InFlight+v.Back+v.Held != 0 {
		t.Errorf("left behind: %+v", v)
	}
	if _, wholes, _ := e.saw(); len(wholes) != 0 {
		t.Error("the request was sent although nobody waits for it")
	}
}

// SGLang looks for closed connections every few seconds only: a slice has a name of its own by which it is stopped.
func TestAClientLeavesDuringASliceOfSGLang(t *testing.T) {
	e, p := simulated(t, sim.SGLang, "lanes.border = 1000")
	if _, _, _, err := ask(p, chatStream("hi"), "X-Session-Id", "short"); err != nil {
		t.Fatal(err)
	}
	e.ClearLog()
	ctx, leave := context.WithCancel(context.Background())
	long := later(p, ctx, chatStream(words("long", 60_000)), "X-Session-Id", "long")
	until, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Await(until, func(log []sim.Entry) bool { return len(log) > 0 && log[0].PromptTokens > 0 }); err != nil {
		t.Fatal(err)
	}
	leave()
	wait(t, "the client to be gone", long)
	if err := e.Await(until, func(log []sim.Entry) bool { return log[0].Outcome == sim.Gone }); err != nil {
		t.Fatal(err)
	}
	first := e.Log()[0]
	if first.Stream || !strings.Contains(string(first.Body), `"rid"`) || first.Done.Sub(first.Time) > 3*time.Second {
		t.Errorf("the first request was a stream %v, and went on for %v", first.Stream, first.Done.Sub(first.Time))
	}
	p.settled()
}

// A client leaves between two slices: nothing more is sent.
func TestAClientLeavesBetweenTwoSlices(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	ctx, leave := context.WithCancel(context.Background())
	long, short := between(t, p, e, ctx, chatStream(words("long", 20_000)))
	leave()
	if got := wait(t, "the client to be gone", long); got.err == nil {
		t.Errorf("it had an answer: %.200q", got.text)
	}
	eventually(t, "the request to be forgotten", func() bool { return p.upstreams()["a"].lanes.view().Back == 0 })
	close(e.short)
	expectWhole(t, "the short turn", wait(t, "the short turn", short))
	p.settled()
	if slices, wholes, _ := e.saw(); len(slices) != 1 || len(wholes) != 0 {
		t.Errorf("%d slices and %d whole prompts were sent", len(slices), len(wholes))
	}
}

// Lanes, or slices alone, are switched off between two slices: the request goes whole, at once.
func TestLanesAreSwitchedOffBetweenTwoSlices(t *testing.T) {
	for _, change := range []string{"off", "no slices"} {
		e := newSliceEngine(t, "a")
		p := startProxy(t, sliceSettings, e.fakeEngine)
		body := chatStream(words("long", 20_000))
		long, short := between(t, p, e, context.Background(), body)
		set := p.settings.Load().Lanes
		if set.Slices = false; change == "off" {
			set.Off = true
		} else {
			close(e.short)
		}
		p.upstreams()["a"].lanes.setOptions(laneOptions(&set))
		expectWhole(t, change+": the client", wait(t, "the long answer", long))
		e.expectOnce(t, body, 1)
		if slices, _, _ := e.saw(); len(slices) != 1 {
			t.Errorf("%s: %d slices", change, len(slices))
		}
		if change == "off" {
			close(e.short)
		}
		expectWhole(t, "the short turn", wait(t, "the short turn", short))
		p.settled()
	}
}

// The proxy drains while a prompt is between two slices: it is served. When the limit has passed, it is told.
func TestShutdownBetweenTwoSlices(t *testing.T) {
	for _, limit := range []string{"5s", "50ms"} {
		e := newSliceEngine(t, "a")
		p := startProxy(t, sliceSettings+"\n[drain]\ndelay = \"1ms\"\nlimit = \""+limit+"\"\n", e.fakeEngine)
		body := chatStream(words("long", 20_000))
		long, short := between(t, p, e, context.Background(), body)
		p.stop()
		if limit == "5s" {
			close(e.short)
			expectWhole(t, "the client", wait(t, "the long answer", long))
			e.expectOnce(t, body, 1)
			expectWhole(t, "the short turn", wait(t, "the short turn", short))
		} else {
			got := wait(t, "the long answer", long)
			if got.err == nil || !strings.Contains(got.err.Error(), "shutting_down") {
				t.Errorf("the client got %v %.200q", got.err, got.text)
			}
			wait(t, "the short turn's end", short)
		}
		p.shutdown()
	}
}

// A reload takes the engine out while a slice runs there: the request goes on elsewhere, whole and once.
func TestAnEngineIsTakenOutDuringASlice(t *testing.T) {
	body := chatStream(words("long", 20_000))
	p, st := sliceAt(t, "", body)
	gone, other, long := st.at, st.other, st.long
	toml := fmt.Sprintf("listen = \"127.0.0.1:0\"\ndrain.delay = \"1ms\"\ndrain.limit = \"5s\"\nprobe.interval = \"200ms\"\n%s\n[[engine]]\nname = %q\nurl = %q\nkind = \"custom\"\n", sliceSettings, other.name, other.URL)
	if err := p.Reload(func() (*config.Config, error) { return config.Parse("test.toml", []byte(toml)) }); err != nil {
		t.Fatal(err)
	}
	close(st.run.done)
	got := wait(t, "the long answer", long)
	expectWhole(t, "the client", got)
	if got.header.Get("X-Warmring-Engine") != other.name {
		t.Errorf("answered with %v", got.header)
	}
	if _, wholes, _ := gone.saw(); len(wholes) != 0 {
		t.Error("the engine that was taken out got the request")
	}
	other.expectOnce(t, body, 0)
}
