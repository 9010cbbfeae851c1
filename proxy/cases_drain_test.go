package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// C212: a rolling update. Balancers go on sending until they have seen that readiness says no: what comes within the delay
// is served as ever, over connections that then close, so that no client sees the proxy go. Running streams end whole.
func TestARolloutIsServedUntilBalancersHaveSeenIt(t *testing.T) {
	const delay = 2 * time.Second
	next := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") == "" {
			events(w, helloEvent, stopEvent, doneEvent)
			return
		}
		events(w, helloEvent)
		select {
		case <-next:
			events(w, stopEvent, doneEvent)
		case <-r.Context().Done():
		}
	})
	p := startProxy(t, fmt.Sprintf("[drain]\ndelay = %q\nlimit = \"30s\"", delay), e)
	var streams sync.WaitGroup
	for i := range 10 {
		streams.Go(func() {
			got := p.post("/v1/chat/completions", chatStream(fmt.Sprint("long ", i)), "X-Slow", "1")
			if got.status != 200 || got.err != nil || got.body != helloEvent+stopEvent+doneEvent {
				t.Errorf("a running stream: %d %v %q", got.status, got.err, got.body)
			}
		})
	}
	eventually(t, "10 streams to run", func() bool { return len(e.got()) == 10 })
	kept := p.dial()
	kept.send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	kept.receive()

	p.stop()
	stopped := time.Now()
	eventually(t, "readiness to turn false", func() bool { return p.operator("GET", "/readyz").status == 503 })
	served, closed := 0, false
	for i := 0; ; i++ { // the balancer goes on for as long as it is let
		var got answer
		if i == 0 {
			kept.send(rawPost("/v1/chat/completions", chat("over a kept connection")))
			r := kept.receive()
			got = answer{status: r.status, body: r.body}
			closed = kept.closed()
		} else {
			got = p.post("/v1/chat/completions", chatStream(fmt.Sprint("late ", i)))
		}
		if got.status == 200 {
			served++
			continue
		}
		if after := time.Since(stopped); after < delay || got.status != 503 {
			t.Errorf("%v into the drain: %d %s", after, got.status, got.body)
		}
		break
	}
	t.Logf("%d requests were served during the delay", served)
	if served > 0 && !closed {
		t.Error("the kept connection stays open: its client goes on using this proxy")
	}
	if served == 0 && time.Since(stopped) < delay {
		t.Error("none was served")
	}
	if got := p.operator("GET", "/healthz"); got.status != 200 {
		t.Errorf("liveness says %d: a supervisor would kill the streams", got.status)
	}
	close(next)
	streams.Wait()
	p.shutdown()
}

// C214: an engine says itself that it stops: its health turns 503 while five answers run. It gets no new request, the
// answers end whole, and its sessions move once, each to an engine where it then stays when the other is back.
func TestAnEngineThatStopsIsSparedAndItsSessionsMoveOnce(t *testing.T) {
	var leaving atomic.Bool
	next := make(chan struct{})
	write := func(w http.ResponseWriter, r *http.Request) {
		events(w, helloEvent)
		if r.Header.Get("X-Slow") != "" {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		events(w, stopEvent, doneEvent)
	}
	stops := func(s *http.Server) {
		serve := s.Handler
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" && leaving.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			serve.ServeHTTP(w, r)
		})
	}
	a, b, c := newFakeEngine(t, "a", write, stops), newFakeEngine(t, "b", write), newFakeEngine(t, "c", write)
	p := startProxy(t, "", a, b, c)
	turn := func(session string, n int, header ...string) answer {
		said := []string{"hello from " + session}
		for i := range n {
			said = append(said, fmt.Sprint("answer ", i), "more")
		}
		return p.post("/v1/chat/completions", chatStream(said...), append(header, "X-Session-Id", session)...)
	}
	var on []string
	for i := 0; len(on) < 10; i++ {
		if s := fmt.Sprint("s", i); engineOf(turn(s, 0)) == "a" {
			on = append(on, s)
		}
	}
	before := len(a.got()) + 5
	var streams sync.WaitGroup
	for _, s := range on[:5] {
		streams.Go(func() {
			if got := turn(s, 1, "X-Slow", "1"); got.status != 200 || got.err != nil || got.body != helloEvent+stopEvent+doneEvent || engineOf(got) != "a" {
				t.Errorf("%s: %d %v %q on %s", s, got.status, got.err, got.body, engineOf(got))
			}
		})
	}
	eventually(t, "five answers to run", func() bool { return len(a.got()) == before })
	leaving.Store(true)
	eventually(t, "the engine to be out of use", func() bool { return !p.fleet.ByName("a").State().Usable() })
	moved := map[string]string{}
	for _, s := range on[5:] { // the other five wanted a turn as well
		got := turn(s, 1)
		if got.status != 200 || engineOf(got) == "a" {
			t.Errorf("%s: %d on %s", s, got.status, engineOf(got))
		}
		moved[s] = engineOf(got)
	}
	close(next)
	streams.Wait()
	for _, s := range on[:5] {
		got := turn(s, 2)
		if got.status != 200 || engineOf(got) == "a" {
			t.Errorf("%s: %d on %s", s, got.status, engineOf(got))
		}
		moved[s] = engineOf(got)
	}
	if n := len(a.got()); n != before {
		t.Errorf("the engine was sent %d requests after its word", n-before)
	}
	leaving.Store(false)
	eventually(t, "the engine to be back", func() bool { return p.fleet.ByName("a").State().String() == "ready" })
	for _, s := range on {
		if got := turn(s, 3); engineOf(got) != moved[s] || !strings.Contains(got.header.Get("X-Warmring-Reason"), "bound") {
			t.Errorf("%s went on to %s (%s), it lives on %s", s, engineOf(got), got.header.Get("X-Warmring-Reason"), moved[s])
		}
	}
}

// C214: long prompts are held for an engine when its operator drains it. The one that it computes ends there; the held ones are placed
// anew at once, and the engine never sees them.
func TestWhatIsHeldForADrainedEngineMoves(t *testing.T) {
	a, b := newLaneEngine(t, "a"), newLaneEngine(t, "b")
	p := startProxy(t, calm, a.fakeEngine, b.fakeEngine)
	state := func(engine string) string { return p.fleet.ByName(engine).State().String() }
	p.operator("POST", "/api/engines/b/drain") // so that all of them are placed on the other
	eventually(t, "it to drain", func() bool { return state("b") == "draining" })
	var long []<-chan reply
	for i := range 4 {
		long = append(long, later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 20_000)), "X-Session-Id", fmt.Sprint("long", i)))
	}
	eventually(t, "one in work and three held", func() bool { return a.live.Load() == 1 && p.upstreams()["a"].lanes.view().Held == 3 })
	p.operator("POST", "/api/engines/b/undrain")
	eventually(t, "it to be back", func() bool { return state("b") == "ready" })
	p.operator("POST", "/api/engines/a/drain")
	eventually(t, "the held ones to have moved", func() bool {
		return p.upstreams()["a"].lanes.view().Held == 0 && b.live.Load() == 1 && p.upstreams()["b"].lanes.view().Held == 2
	})
	if a.live.Load() != 1 {
		t.Error("the one in work was cut")
	}
	close(a.token)
	close(b.token)
	moved := map[string]int{}
	for i, r := range long {
		got := wait(t, "a long prompt", r)
		expectWhole(t, fmt.Sprint("long prompt ", i), got)
		moved[got.header.Get("X-Warmring-Engine")]++
	}
	if moved["a"] != 1 || moved["b"] != 3 || len(a.got()) != 1 {
		t.Errorf("they were answered by %v; the drained engine was sent %d", moved, len(a.got()))
	}
}
