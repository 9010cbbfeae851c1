package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// deaths are the ways in which an engine dies in the middle of a chunked answer.
var deaths = map[string]func(c *net.TCPConn){
	"reset":           reset,
	"closed":          func(*net.TCPConn) {},
	"in a chunk":      func(c *net.TCPConn) { _, _ = io.WriteString(c, "ff\r\ndata: {\"choi") },
	"in an event":     func(c *net.TCPConn) { _, _ = io.WriteString(c, "c\r\ndata: {\"choi\r\n") },
	"ended too early": func(c *net.TCPConn) { _, _ = io.WriteString(c, "0\r\n\r\n") },
	"garbage":         func(c *net.TCPConn) { _, _ = io.WriteString(c, "zz\r\n") },
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(text string) string {
	if text == "" {
		return ""
	}
	return hexOf(len(text)) + "\r\n" + text + "\r\n"
}

// C044, C003, item 6: an engine that dies after the commit point, in each family
// and each way. The client has what came, then its family's error event, then a
// broken end, and the request is sent to nobody else.
func TestAnEngineDiesInTheMiddleOfItsAnswer(t *testing.T) {
	for _, f := range families {
		for how, die := range deaths {
			t.Run(f.name+" "+how, func(t *testing.T) {
				answer := func(w http.ResponseWriter, r *http.Request) {
					hijack(w, func(c *net.TCPConn) {
						_, _ = io.WriteString(c, streamHead+chunk(f.preamble)+chunk(f.token))
						<-time.After(20 * time.Millisecond) // a RST must not overtake what was sent
						die(c)
					})
				}
				a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
				a.toml, b.toml = "kind = \"vllm\"", "kind = \"vllm\""
				p := startProxy(t, "", a, b)
				began := time.Now()
				got := p.post(f.path, f.stream)
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %v", took)
				}
				if got.status != 200 || got.err == nil {
					t.Errorf("status %d, a clean end", got.status)
				}
				rest, ok := strings.CutPrefix(got.body, f.preamble+f.token)
				if !ok || !strings.Contains(rest, f.lost) || strings.Contains(rest, "[DONE]") || strings.Contains(rest, "message_stop") || strings.Contains(rest, "finish_reason") {
					t.Errorf("after the token: %q", rest)
				}
				if i := strings.Index(rest, f.lost); i > 0 && !strings.HasSuffix(rest[:i], "\n\n") {
					t.Errorf("the error event does not begin at an event's end: %q", rest)
				}
				if n := len(a.got()) + len(b.got()); n != 1 {
					t.Errorf("sent %d times", n)
				}
				eventually(t, "the end in the log", func() bool { return strings.Contains(p.log.String(), "end=upstream_reset") })
			})
		}
	}
}

// C074, C044: an engine that dies before the commit point, in each family and
// way: another one answers and the client cannot tell.
func TestAnEngineDiesBeforeItsFirstToken(t *testing.T) {
	for _, f := range families {
		for how, die := range deaths {
			if strings.HasPrefix(how, "in an") && f.name == "completions" {
				continue // the same as the others, and half an event there
			}
			for _, after := range []string{"nothing", "headers", "preamble"} {
				t.Run(f.name+" "+how+" after "+after, func(t *testing.T) {
					var calls atomic.Int32
					answer := func(w http.ResponseWriter, _ *http.Request) {
						if calls.Add(1) > 1 {
							events(w, f.preamble, f.token, f.rest)
							return
						}
						hijack(w, func(c *net.TCPConn) {
							switch after {
							case "headers":
								_, _ = io.WriteString(c, streamHead)
							case "preamble":
								_, _ = io.WriteString(c, streamHead+chunk(f.preamble))
							default:
								reset(c)
								return
							}
							<-time.After(10 * time.Millisecond)
							die(c)
						})
					}
					a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
					a.toml, b.toml = "kind = \"vllm\"", "kind = \"vllm\""
					p := startProxy(t, "", a, b)
					got := p.post(f.path, f.stream)
					if got.status != 200 || got.err != nil || got.body != f.whole() {
						t.Errorf("%d %v %q", got.status, got.err, got.body)
					}
					if n := len(a.got()) + len(b.got()); n != 2 || len(a.got()) != 1 {
						t.Errorf("sent %d times, %d of them to a", n, len(a.got()))
					}
					if got.header.Get("X-Warmring-Reason") != "failover" {
						t.Errorf("reason %s", got.header.Get("X-Warmring-Reason"))
					}
					if v := p.metric("warmring_resent_total"); v != "1" {
						t.Errorf("C074: marked %s times", v)
					}
				})
			}
		}
	}
}

// The same for answers that are no streams: nothing of them is released before
// their end.
func TestAnEngineDiesInAWholeAnswer(t *testing.T) {
	for _, f := range families {
		for name, bytes := range map[string]string{
			"length":  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"id\":",
			"chunked": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{\"id\":\r\n",
			"head":    "HTTP/1.1 200 OK\r\nContent-",
			"garbage": "SSH-2.0-x\r\n",
			"upgrade": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		} {
			t.Run(f.name+" "+name, func(t *testing.T) {
				var calls atomic.Int32
				answer := func(w http.ResponseWriter, _ *http.Request) {
					if calls.Add(1) == 1 {
						hijack(w, func(c *net.TCPConn) { _, _ = io.WriteString(c, bytes) })
						return
					}
					_, _ = io.WriteString(w, `{"whole":true}`)
				}
				p := startProxy(t, "", newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer))
				if got := p.post(f.path, f.body); got.status != 200 || got.err != nil || got.body != `{"whole":true}` {
					t.Errorf("%d %v %q", got.status, got.err, got.body)
				}
				if n := calls.Load(); n != 2 {
					t.Errorf("sent %d times", n)
				}
			})
		}
	}
}

// C074: an engine that took the request and broke off is replaced at most once,
// over kept connections, too; the last answer is an honest 502.
func TestABrokenRequestIsSentTwiceAtMost(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d engines, kept connection %v", n, warm), func(t *testing.T) {
				var broken atomic.Bool
				var calls atomic.Int32
				answer := func(w http.ResponseWriter, _ *http.Request) {
					if !broken.Load() {
						_, _ = io.WriteString(w, "{}")
						return
					}
					calls.Add(1)
					hijack(w, reset)
				}
				var engines []*fakeEngine
				for i := range n {
					engines = append(engines, newFakeEngine(t, string(rune('a'+i)), answer))
				}
				p := startProxy(t, "retry.attempts = 5\nretry.wait = \"10s\"", engines...)
				if warm {
					for i := range 4 * n {
						p.post("/v1/chat/completions", chat(fmt.Sprint("warm up ", i)))
					}
				}
				broken.Store(true)
				began := time.Now()
				got := p.post("/v1/chat/completions", chat("hi"))
				if got.status != 502 || !strings.Contains(got.body, "upstream_closed") {
					t.Errorf("C071: %d %s", got.status, got.body)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("C071: took %v", took)
				}
				if c := calls.Load(); c > 2 {
					t.Errorf("sent %d times", c)
				}
			})
		}
	}
}

// C074 a, C081: nobody listens at one engine: the next one serves, and from the
// first refused connection on nobody is sent there.
func TestADeadEngineIsSkippedAtOnce(t *testing.T) {
	a, b := newFakeEngine(t, "a", nil), newFakeEngine(t, "b", nil)
	p := startProxy(t, "", a, b)
	sessions := []string{}
	for i := 0; len(sessions) < 5; i++ { // sessions that live on a
		s := fmt.Sprint("s", i)
		if p.post("/v1/chat/completions", chat("hello from "+s), "X-Session-Id", s).header.Get("X-Warmring-Engine") == "a" {
			sessions = append(sessions, s)
		}
	}
	a.CloseClientConnections()
	a.Close()
	for i := range 50 {
		s := sessions[i%len(sessions)]
		got := p.post("/v1/chat/completions", chat("hello from "+s, "x", "next"), "X-Session-Id", s)
		if got.status != 200 || got.header.Get("X-Warmring-Engine") != "b" {
			t.Fatalf("%d on %s: %s", got.status, got.header.Get("X-Warmring-Engine"), got.body)
		}
	}
	if n := strings.Count(p.log.String(), "engine failed a request"); n > 1 {
		t.Errorf("%d requests met the dead engine", n)
	}
}

// C076, C175, C164: a client's error is asked of one engine once, relayed as it
// is, and no fault of the engine.
func TestClientErrorsAreNotRetried(t *testing.T) {
	status := 400
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":"context length ...","type":"BadRequestError","code":%d}}`, status)
	}
	a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
	p := startProxy(t, "", a, b)
	sent := 0
	for _, status = range []int{400, 401, 403, 404, 409, 413, 422} {
		for _, f := range families {
			for range 3 {
				got := p.post(f.path, f.stream)
				sent++
				if got.status != status || got.body != fmt.Sprintf(`{"error":{"message":"context length ...","type":"BadRequestError","code":%d}}`, status) {
					t.Errorf("%d: %d %s", status, got.status, got.body)
				}
			}
		}
	}
	if n := len(a.got()) + len(b.got()); n != sent {
		t.Errorf("%d requests, the engines got %d", sent, n)
	}
	for _, e := range p.fleet.Engines() {
		if e.State().String() != "ready" {
			t.Errorf("%s is %s", e.Name, e.State())
		}
	}
}

// C165, C178, C179, C080: engines that are full are tried elsewhere; what the last
// one says is relayed with its headers, at once, and a moment later they are
// asked again.
func TestFullEngines(t *testing.T) {
	for _, status := range []int{429, 503} {
		for _, engines := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d from %d", status, engines), func(t *testing.T) {
				var full atomic.Bool
				full.Store(true)
				answer := func(w http.ResponseWriter, _ *http.Request) {
					if !full.Load() {
						_, _ = io.WriteString(w, "{}")
						return
					}
					h := w.Header()
					h.Set("Retry-After", "30")
					h.Set("X-Ratelimit-Remaining-Requests", "0")
					h.Set("Anthropic-Ratelimit-Unified-Status", "rejected")
					h.Set("Connection", "keep-alive")
					h.Set("Set-Cookie", "a=b")
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"full":true}`)
				}
				var all []*fakeEngine
				for i := range engines {
					all = append(all, newFakeEngine(t, string(rune('a'+i)), answer))
				}
				p := startProxy(t, "", all...)
				began := time.Now()
				for range 10 {
					got := p.post("/v1/messages", families[2].body)
					if got.status != status || got.body != `{"full":true}` || got.header.Get("Retry-After") != "30" || got.header.Get("X-Ratelimit-Remaining-Requests") != "0" || got.header.Get("Anthropic-Ratelimit-Unified-Status") != "rejected" || got.header.Get("Set-Cookie") != "a=b" {
						t.Fatalf("%d %v %s", got.status, got.header, got.body)
					}
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("took %v: it waited", took)
				}
				for _, e := range all {
					if n := len(e.got()); n != 10 {
						t.Errorf("%s was asked %d times, want once for each request", e.name, n)
					}
				}
				full.Store(false)
				if got := p.post("/v1/messages", families[2].body); got.status != 200 {
					t.Errorf("the breaker opened: %d %s", got.status, got.body)
				}
			})
		}
	}
}

// C175: other 5xx go to one more engine, 504 and 501 to none.
func TestServerErrors(t *testing.T) {
	for status, calls := range map[int]int{500: 2, 502: 2, 529: 2, 504: 1, 501: 1} {
		answer := func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, "engine says %d", status)
		}
		all := []*fakeEngine{newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer), newFakeEngine(t, "c", answer)}
		p := startProxy(t, "", all...)
		got := p.post("/v1/chat/completions", chat("hi"))
		if got.status != status || got.body != fmt.Sprintf("engine says %d", status) {
			t.Errorf("%d: %d %s", status, got.status, got.body)
		}
		n := 0
		for _, e := range all {
			n += len(e.got())
		}
		if n != calls {
			t.Errorf("%d: sent %d times, want %d", status, n, calls)
		}
	}
}

// C046, C048, C057: errors that engines name inside a 200 stream.
func TestErrorsInsideAStream(t *testing.T) {
	for _, tc := range []struct {
		name, first string
		calls       int
		end         string
	}{
		{"C046 a full worker", `data: {"choices":[],"error":{"code":502,"message":"worker full"}}` + "\n\n", 2, "upstream_error"},
		{"C048 overloaded", "event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"the real message"}}` + "\n\n", 2, "upstream_error"},
		{"C057 over-long prompt", `data: {"error":{"code":400,"message":"This model's maximum context length is 10","type":"BadRequestError"}}` + "\n\n", 1, "client_error"},
		{"queue full", `data: {"error":{"code":503,"message":"The request queue is full."}}` + "\n\n", 2, "upstream_error"},
		{"cancelled elsewhere", `data: {"error":{"code":500,"message":"boom"}}` + "\n\n", 2, "upstream_error"},
	} {
		for _, engines := range []int{1, 3} {
			for _, f := range families[:3] {
				t.Run(fmt.Sprintf("%s %s %d", tc.name, f.name, engines), func(t *testing.T) {
					stream := tc.first + doneEvent
					if f.name == "messages" {
						stream = tc.first
						if !strings.HasPrefix(stream, "event:") {
							stream = strings.Replace(stream, "data: {", "event: error\ndata: {\"type\":\"error\",", 1)
						}
					}
					answer := func(w http.ResponseWriter, _ *http.Request) { events(w, stream) }
					var all []*fakeEngine
					for i := range engines {
						all = append(all, newFakeEngine(t, string(rune('a'+i)), answer))
					}
					p := startProxy(t, "", all...)
					got := p.post(f.path, f.stream)
					if got.status != 200 || got.body != stream || got.err != nil {
						t.Errorf("%d %v %q", got.status, got.err, got.body)
					}
					n := 0
					for _, e := range all {
						n += len(e.got())
					}
					if want := min(tc.calls, engines); n != want {
						t.Errorf("sent %d times, want %d", n, want)
					}
					eventually(t, "the end", func() bool { return p.metric(fmt.Sprintf(`warmring_request_ends_total{end=%q}`, tc.end)) == "1" })
				})
			}
		}
	}
	// The second engine can do it: the client hears nothing of the first.
	var calls atomic.Int32
	answer := func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			events(w, `data: {"error":{"code":503,"message":"full"}}`+"\n\n", doneEvent)
			return
		}
		events(w, roleEvent, helloEvent, stopEvent, doneEvent)
	}
	p := startProxy(t, "", newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer))
	if got := p.post("/v1/chat/completions", families[0].stream); got.body != roleEvent+helloEvent+stopEvent+doneEvent {
		t.Errorf("%d %q", got.status, got.body)
	}
}

// C078: requests wait for the only engine to come back, within their budget.
func TestRequestsWaitForTheirEngine(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	p := startProxyTOML(t, "listen = \"127.0.0.1:0\"\nretry.wait = \"10s\"\n[[engine]]\nname = \"a\"\nurl = \"http://"+address+"\"\nmodels = [\"m\"]\n")
	var all sync.WaitGroup
	var ok atomic.Int32
	for i := range 9 {
		all.Go(func() {
			if got := p.post("/v1/chat/completions", chat(fmt.Sprint("hi ", i))); got.status == 200 {
				ok.Add(1)
			} else {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	leaver := p.dial()
	leaver.send(rawPost("/v1/chat/completions", chat("never mind")))
	eventually(t, "10 to wait", func() bool { return p.waiters.n.Load() == 10 })
	_ = leaver.Close()
	eventually(t, "the leaver to be gone", func() bool { return p.waiters.n.Load() == 9 })
	e := newFakeEngineAt(t, "a", address)
	all.Wait()
	if ok.Load() != 9 || len(e.got()) != 9 {
		t.Errorf("%d answered, the engine got %d", ok.Load(), len(e.got()))
	}
	if v := p.metric("warmring_waiting_shed_total"); v != "0" {
		t.Errorf("shed %s", v)
	}
}

// C078, C167: with no budget, or too many who wait, it is 503 with Retry-After at
// once, in the family's shape; an unknown model is 404.
func TestNoEngine(t *testing.T) {
	for name, extra := range map[string]string{"no budget": "retry.wait = \"0s\"", "nobody may wait": "retry.max_waiting = 0\nretry.wait = \"9s\""} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, extra, e)
			p.post("/v1/chat/completions", chat("hi"))
			e.CloseClientConnections()
			e.Close()
			eventually(t, "the engine to be down", func() bool { return p.fleet.Engines()[0].State().String() == "down" })
			for _, f := range families {
				began := time.Now()
				got := p.post(f.path, f.body)
				if got.status != 503 || got.header.Get("Retry-After") == "" || (f.name == "messages") != strings.Contains(got.body, `{"type":"error"`) {
					t.Errorf("%s: %d %v %s", f.name, got.status, got.header, got.body)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %v", took)
				}
				if got := p.post(f.path, strings.Replace(f.body, `"m"`, `"zz"`, 1)); got.status != 404 || !strings.Contains(got.body, "zz") {
					t.Errorf("%s: %d %s", f.name, got.status, got.body)
				}
			}
		})
	}
}

// C194: connections that the engine closes while they rest cost nobody a request.
func TestConnectionsThatDieOfAge(t *testing.T) {
	var work atomic.Int32
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		work.Add(1)
		_, _ = io.WriteString(w, "{}")
	}, func(s *http.Server) { s.IdleTimeout = 5 * time.Millisecond })
	p := startProxy(t, "lanes.slices = false", e) // they are work as well
	bodies := []string{chat("hi"), chat(strings.Repeat("long ", 60_000))}
	for i := range 100 {
		time.Sleep(time.Duration(4+i%3) * time.Millisecond) // right where the engine closes
		if got := p.post("/v1/chat/completions", bodies[i%2]); got.status != 200 {
			t.Fatalf("request %d: %d %s", i, got.status, got.body)
		}
	}
	if n := work.Load(); n != 100 {
		t.Errorf("the engine worked %d times for 100 requests", n)
	}
}

// C196: large bodies meet engines that close soon.
func TestLargeBodiesOverConnectionsThatDie(t *testing.T) {
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		func(s *http.Server) { s.IdleTimeout = 20 * time.Millisecond })
	p := startProxy(t, "", e)
	body := chat(strings.Repeat("x", 8<<20))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 3 {
				if got := p.post("/v1/chat/completions", body); got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// C197: connections are kept: many requests, few dials.
func TestConnectionsAreKept(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	const clients = 40
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := p.dial()
			for range 25 {
				c.send(rawPost("/v1/chat/completions", chat(fmt.Sprint("hi ", i))))
				if got := c.receive(); got.status != 200 {
					t.Errorf("%d", got.status)
				}
			}
		})
	}
	all.Wait()
	if dials := p.upstreams()["a"].pool.Dials.Load(); dials > 2*clients {
		t.Errorf("%d dials for %d requests of %d clients", dials, 25*clients, clients)
	}
}
