package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func (p *proxyUnderTest) operator(method, path string) answer {
	p.t.Helper()
	req, err := http.NewRequest(method, p.adminURL+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(req)
}

// C212: readiness turns false at once, the listener stays open and answers 503
// once the delay is over, running streams end whole, then the proxy does.
func TestDraining(t *testing.T) {
	next := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		events(w, helloEvent)
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
		events(w, stopEvent, doneEvent)
	})
	p := startProxy(t, "[drain]\ndelay = \"300ms\"\nlimit = \"10s\"", e)
	if got := p.operator("GET", "/readyz"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			got := p.post("/v1/chat/completions", chatStream(fmt.Sprint("hi ", i)))
			if got.status != 200 || got.err != nil || got.body != helloEvent+stopEvent+doneEvent {
				t.Errorf("%d %v %q", got.status, got.err, got.body)
			}
		})
	}
	eventually(t, "10 to run", func() bool { return len(e.got()) == 10 })
	kept := p.dial()
	kept.send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	kept.receive()
	p.stop()
	eventually(t, "readiness to turn false", func() bool { return p.operator("GET", "/readyz").status == 503 })
	if got := p.operator("GET", "/healthz"); got.status != 200 {
		t.Errorf("it is still alive: %d", got.status)
	}
	eventually(t, "the delay to pass", p.refusing.Load)
	for _, f := range families {
		got := p.post(f.path, f.body)
		if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "shutting down") || (f.name == "messages") != strings.Contains(got.body, `{"type":"error"`) {
			t.Errorf("%d %v %s", got.status, got.header, got.body)
		}
	}
	kept.send(rawPost("/v1/chat/completions", chat("hi")))
	if got := kept.receive(); got.status != 503 || !kept.closed() {
		t.Errorf("over a kept connection: %d", got.status)
	}
	select {
	case <-p.done:
		t.Fatal("it did not wait for the streams")
	default:
	}
	close(next)
	all.Wait()
	p.shutdown()
}

// What does not end within the limit is cut, with the family's error event and a
// broken end; silent engines and silent clients do not hold it up.
func TestTheDrainLimit(t *testing.T) {
	for _, f := range families {
		for _, phase := range []string{"decode", "prefill", "stuck client", "flood"} {
			t.Run(f.name+" "+phase, func(t *testing.T) {
				e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
					switch phase {
					case "decode":
						events(w, f.preamble, f.token)
					case "flood", "stuck client":
						events(w, f.preamble)
						for r.Context().Err() == nil {
							events(w, f.token)
						}
					}
					<-r.Context().Done()
				})
				p := startProxy(t, "[drain]\ndelay = \"1ms\"\nlimit = \"100ms\"", e)
				c := p.dial()
				c.send(rawPost(f.path, f.stream))
				eventually(t, "it to run", func() bool { return len(e.got()) == 1 })
				if phase != "prefill" {
					if _, err := c.in.Peek(20); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				p.stop()
				switch phase {
				case "stuck client":
				case "prefill":
					if got := c.receive(); got.status != 503 || !strings.Contains(got.body, "shutting down") {
						t.Errorf("%d %s", got.status, got.body)
					}
				default:
					got := c.receive()
					if got.err == nil || !strings.Contains(got.body, strings.TrimSuffix(f.lost, "3,")) {
						t.Errorf("%v %.300q", got.err, got.body[max(0, len(got.body)-300):])
					}
				}
				p.shutdown()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// C214: an engine that an operator drains gets no new session; its streams end,
// its sessions move once and say so, and come back to their new home only.
func TestDrainingAnEngine(t *testing.T) {
	next := make(chan struct{})
	answer := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Slow"), "1") {
			events(w, helloEvent)
			select {
			case <-next:
			case <-r.Context().Done():
			}
			events(w, stopEvent, doneEvent)
			return
		}
		fmt.Fprint(w, `{}`)
	}
	a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
	p := startProxy(t, "", a, b)
	ask := func(session string, turn int, header ...string) answer0 {
		text := []string{"hello from " + session}
		for i := range turn {
			text = append(text, fmt.Sprint("turn ", i), "more")
		}
		got := p.post("/v1/chat/completions", chat(text...), append(header, "X-Session-Id", session)...)
		return answer0{got, got.header.Get("X-Warmring-Engine"), got.header.Get("X-Warmring-Reason")}
	}
	var on []string
	for i := 0; len(on) < 5; i++ {
		if s := fmt.Sprint("s", i); ask(s, 0).engine == "a" {
			on = append(on, s)
		}
	}
	before := len(a.got()) + 5
	var all sync.WaitGroup
	for _, s := range on {
		all.Go(func() {
			if got := ask(s, 1, "X-Slow", "1"); got.status != 200 || got.engine != "a" || got.body != helloEvent+stopEvent+doneEvent {
				t.Errorf("%+v", got)
			}
		})
	}
	eventually(t, "them to run", func() bool { return len(a.got()) == before })
	if got := p.operator("POST", "/api/engines/a/drain"); got.status != 200 || !strings.Contains(got.body, "draining") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	n := len(a.got())
	for i := range 20 {
		if got := ask(fmt.Sprint("new", i), 0); got.engine != "b" {
			t.Errorf("a new session went to %s", got.engine)
		}
	}
	close(next)
	all.Wait()
	for _, s := range on {
		if got := ask(s, 2); got.engine != "b" || got.reason != "moved" {
			t.Errorf("%s is on %s (%s)", s, got.engine, got.reason)
		}
	}
	if len(a.got()) != n {
		t.Errorf("a got %d requests while draining", len(a.got())-n)
	}
	p.operator("POST", "/api/engines/a/undrain")
	for _, s := range on {
		if got := ask(s, 3); got.engine != "b" || got.reason != "bound" {
			t.Errorf("%s went back to %s (%s)", s, got.engine, got.reason)
		}
	}
}

type answer0 struct {
	answer
	engine, reason string
}
