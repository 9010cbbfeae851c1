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
)

// C059: the client leaves; the engine's connection is closed well within 500 ms,
// in prefill and in decode, streaming or not, however the client leaves.
func TestTheClientsCloseReachesTheEngine(t *testing.T) {
	for _, f := range families {
		for _, phase := range []string{"prefill", "headers sent", "preamble sent", "decode", "whole"} {
			for _, how := range []string{"close", "reset", "half close"} {
				t.Run(f.name+" "+phase+" "+how, func(t *testing.T) {
					began := make(chan struct{})
					e := newFakeEngine(t, "a", nil)
					e.answer = func(w http.ResponseWriter, r *http.Request) {
						switch phase {
						case "headers sent":
							events(w, "")
						case "preamble sent":
							events(w, f.preamble)
						case "decode":
							events(w, f.preamble, f.token)
						}
						close(began)
						<-r.Context().Done()
					}
					p := startProxy(t, "", e)
					c := p.dial()
					body := f.stream
					if phase == "whole" {
						body = f.body
					}
					c.send(rawPost(f.path, body))
					within(t, 5*time.Second, "the engine to begin", began)
					if phase == "decode" {
						if _, err := c.in.Peek(20); err != nil {
							t.Fatal(err)
						}
					}
					switch how {
					case "close":
						_ = c.Close()
					case "reset":
						_ = c.SetLinger(0)
						_ = c.Close()
					default:
						_ = c.CloseWrite()
					}
					within(t, 500*time.Millisecond, "the engine to see it", e.got()[0].gone)
					eventually(t, "the end in the log", func() bool { return strings.Contains(p.log.String(), "end=client_closed") })
					if st := p.fleet.Engines()[0].State().String(); st != "ready" {
						t.Errorf("C062: the engine is %s", st)
					}
				})
			}
		}
	}
}

// C062: who broke off: three answers that must not be taken for one another.
func TestWhoBrokeOff(t *testing.T) {
	for end, story := range map[string]func(p *proxyUnderTest){
		"client_closed": func(p *proxyUnderTest) {
			c := p.dial()
			c.send(rawPost("/v1/chat/completions", chatStream("hang")))
			_, _ = c.in.Peek(20)
			_ = c.Close()
		},
		"upstream_reset": func(p *proxyUnderTest) { p.post("/v1/chat/completions", chatStream("die")) },
		"proxy_timeout":  func(p *proxyUnderTest) { p.post("/v1/chat/completions", chatStream("hang")) },
	} {
		e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			events(w, helloEvent)
			if strings.Contains(string(body), "die") {
				hijack(w, reset)
				return
			}
			<-r.Context().Done()
		})
		extra := ""
		if end == "proxy_timeout" {
			extra = "timeouts.between_bytes = \"1s\""
		}
		p := startProxy(t, extra, e)
		story(p)
		eventually(t, end, func() bool { return p.metric(fmt.Sprintf(`warmring_request_ends_total{end=%q}`, end)) == "1" })
		if !strings.Contains(p.log.String(), "end="+end) {
			t.Errorf("%s is not in the log", end)
		}
	}
}

// C063, C087: clients that leave at any moment leave nothing behind: the gauges
// are checked when the proxy stops.
func TestNothingIsLeftOfClientsThatLeave(t *testing.T) {
	for _, kind := range []string{"custom", "sglang"} {
		t.Run(kind, func(t *testing.T) {
			answer := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/abort_request" {
					return
				}
				wait := func(d time.Duration) bool {
					select {
					case <-time.After(d):
						return true
					case <-r.Context().Done():
						return false
					}
				}
				if !wait(time.Duration(rand.IntN(40)) * time.Millisecond) {
					return
				}
				events(w, roleEvent)
				for range 5 {
					if !wait(time.Duration(rand.IntN(20)) * time.Millisecond) {
						return
					}
					events(w, helloEvent)
				}
				if rand.IntN(10) == 0 {
					hijack(w, reset) // an engine's own death now and then
					return
				}
				events(w, stopEvent, doneEvent)
			}
			a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
			a.toml, b.toml = "kind = \""+kind+"\"", "kind = \""+kind+"\""
			p := startProxy(t, "log.access = true", a, b)
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 2 * time.Millisecond)
					c := p.dial()
					c.send(rawPost("/v1/chat/completions", chatStream(fmt.Sprint("hi ", i%7)), fmt.Sprint("X-Session-Id: s", i%7)))
					_ = c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(150)) * time.Millisecond))
					_, _ = io.Copy(io.Discard, c.in)
					if i%2 == 0 {
						_ = c.SetLinger(0)
					}
					_ = c.Close()
				})
			}
			all.Wait()
			p.settled()
			for i := range 4 {
				if got := p.post("/v1/chat/completions", chatStream(fmt.Sprint("after ", i))); got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			if v := p.metric("warmring_panics_total"); v != "0" {
				t.Errorf("%s panics", v)
			}
		})
	}
}

// Invariant 4: SGLang is asked to stop by the name it was given, and only then is
// the connection closed; in prefill, in decode, and when the client takes no more.
func TestSGLangIsAskedToStopBeforeTheClose(t *testing.T) {
	for _, phase := range []string{"prefill", "decode", "flood", "stuck", "shutdown"} {
		t.Run(phase, func(t *testing.T) {
			type event struct{ what, rid string }
			var mu sync.Mutex
			var seen []event
			note := func(what, rid string) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, event{what, rid})
			}
			list := func() []event {
				mu.Lock()
				defer mu.Unlock()
				return append([]event(nil), seen...)
			}
			var given atomic.Value
			began := make(chan struct{})
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var fields struct {
					Rid string `json:"rid"`
				}
				_ = json.Unmarshal(body, &fields)
				if r.URL.Path == "/abort_request" {
					<-time.After(30 * time.Millisecond) // it takes its time
					note("abort", fields.Rid)
					return
				}
				given.Store(fields.Rid)
				defer func() { note("closed", fields.Rid) }()
				switch phase {
				case "prefill":
					close(began)
					<-r.Context().Done()
				case "decode", "shutdown":
					events(w, helloEvent)
					close(began)
					<-r.Context().Done()
				case "flood":
					events(w, helloEvent)
					close(began)
					for r.Context().Err() == nil {
						events(w, helloEvent)
					}
				case "stuck":
					w.Header().Set("Content-Type", "text/event-stream")
					close(began)
					for r.Context().Err() == nil {
						_, _ = io.WriteString(w, strings.Replace(helloEvent, "hello", strings.Repeat("x", 10_000), 1))
					}
				}
			})
			e.toml = "kind = \"sglang\""
			p := startProxy(t, "timeouts.client_write = \"1s\"\n[drain]\ndelay = \"1ms\"\nlimit = \"100ms\"\n[probe]\ninterval = \"200ms\"", e)
			c := p.dial()
			c.send(rawPost("/v1/chat/completions", chatStream("hi")))
			within(t, 5*time.Second, "the engine to begin", began)
			switch phase {
			case "stuck":
				_, _ = c.in.Peek(20) // and no more
			case "shutdown":
				p.stop()
			default:
				_ = c.Close()
			}
			eventually(t, "the close", func() bool {
				l := list()
				return len(l) > 0 && l[len(l)-1].what == "closed" || len(l) > 1
			})
			l := list()
			if len(l) < 2 || l[0].what != "abort" || l[1].what != "closed" || l[0].rid != given.Load() || l[0].rid == "" {
				t.Errorf("the engine saw %v, was given %v", l, given.Load())
			}
		})
	}
}

// A client that is gone before its request is read through must not reach an
// engine.
func TestAClientThatIsGoneBeforeItsTurn(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "retry.wait = \"9s\"", e)
	e.CloseClientConnections()
	e.Close()
	eventually(t, "the engine to be down", func() bool { return p.fleet.Engines()[0].State().String() == "down" })
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chat("hi")))
	eventually(t, "it to wait", func() bool { return p.waiters.n.Load() == 1 })
	_ = c.Close()
	began := time.Now()
	p.settled()
	if took := time.Since(began); took > time.Second {
		t.Errorf("noticed after %v", took)
	}
}

// C070: a limit that fires says which and how much; there is no hidden other one.
func TestALimitThatFiresNamesItself(t *testing.T) {
	for _, body := range []string{chat("hi"), chatStream("hi")} {
		e := newFakeEngine(t, "a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		p := startProxy(t, "timeouts.first_byte = \"1s\"\ntimeouts.between_bytes = \"7s\"", e)
		began := time.Now()
		got := p.post("/v1/chat/completions", body)
		if took := time.Since(began); got.status != 504 || !strings.Contains(got.body, "first-byte") || !strings.Contains(got.body, "1s") || took < 900*time.Millisecond || took > 3*time.Second {
			t.Errorf("%d %s after %v", got.status, got.body, took)
		}
		if n := len(e.got()); n != 1 {
			t.Errorf("C074: sent %d times", n)
		}
		within(t, time.Second, "the engine to be told", e.got()[0].gone)
	}
}

// A slow sender is cut off in the family's shape; a silent one is just dropped.
func TestSlowSenders(t *testing.T) {
	p := startProxy(t, "server.read_timeout = \"1s\"\nserver.idle_timeout = \"1s\"", newFakeEngine(t, "a", nil))
	slow := p.dial()
	slow.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	if got := slow.receive(); got.status != 408 || !strings.Contains(got.body, `{"type":"error"`) || !slow.closed() {
		t.Errorf("%d %s", got.status, got.body)
	}
	idle := p.dial()
	idle.send(rawPost("/v1/chat/completions", chat("hi")))
	if got := idle.receive(); got.status != 200 || !idle.closed() {
		t.Errorf("%d", got.status)
	}
	// Connections that say nothing or go away are nobody's request.
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	before := strings.Count(p.log.String(), "msg=request")
	c, _ = net.Dial("tcp", p.address)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
	if n := strings.Count(p.log.String(), "msg=request") - before; n > 1 {
		t.Errorf("%d lines for a silent connection", n)
	}
}
