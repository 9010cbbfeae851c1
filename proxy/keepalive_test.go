package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const withComments = "keepalive.comments = \"1s\"\n"

// C068: a client that asked for a stream is told every second that it lives, up
// to the engine's first byte; then it has the engine's bytes alone.
func TestCommentsWhileTheEngineIsSilent(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
				events(w, f.preamble)
				select {
				case <-time.After(2500 * time.Millisecond):
				case <-r.Context().Done():
				}
				events(w, f.token, f.rest)
			})
			p := startProxy(t, withComments, e)
			got := p.post(f.path, f.stream)
			if got.status != 200 || got.err != nil || !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") || got.header.Get("X-Accel-Buffering") != "no" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("%d %v %v", got.status, got.err, got.header)
			}
			if got.body != comment+comment+f.whole() {
				t.Errorf("%q", got.body)
			}
			eventually(t, "the end", func() bool { return p.metric(`warmring_request_ends_total{end="ok"}`) == "1" })
		})
	}
}

// What comes in time is the engine's, byte for byte, errors and headers included;
// so is what is no stream.
func TestNoCommentsWhereNoneAreNeeded(t *testing.T) {
	status := 200
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Mine", "1")
		w.Header().Add("Set-Cookie", "a=b")
		if status != 200 || !strings.Contains(string(body), `"stream":true`) {
			w.Header()["Content-Type"] = nil
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "said the engine")
			return
		}
		events(w, roleEvent, helloEvent, stopEvent, doneEvent)
	})
	p := startProxy(t, withComments, e)
	for range 3 {
		got := p.post("/v1/chat/completions", families[0].stream)
		if got.body != roleEvent+helloEvent+stopEvent+doneEvent || got.err != nil || got.header.Get("X-Mine") != "1" || got.header.Get("Set-Cookie") != "a=b" || got.header.Get("X-Warmring-Engine") != "a" {
			t.Errorf("%d %v %v %q", got.status, got.err, got.header, got.body)
		}
	}
	for _, status = range []int{400, 429, 500, 200} {
		got := p.post("/v1/chat/completions", strings.Replace(families[0].stream, "true", fmt.Sprint(status != 200), 1))
		if _, typed := got.header["Content-Type"]; got.status != status || got.body != "said the engine" || typed {
			t.Errorf("%d %v %q", got.status, got.header, got.body)
		}
	}
	if got := p.post("/v1/chat/completions", strings.Replace(families[0].stream, `"m"`, `"zz"`, 1)); got.status != 404 || got.header.Get("X-Request-Id") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// C068: an engine that fails after the first comment can only be told of inside
// the stream, whose end is broken; one that can be replaced still is.
func TestFailuresAfterAComment(t *testing.T) {
	for _, f := range families {
		for _, how := range []string{"status", "reset", "failover", "error inside"} {
			t.Run(f.name+" "+how, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				answer := func(w http.ResponseWriter, r *http.Request) {
					if calls.Add(1) > 1 && how == "failover" {
						events(w, f.preamble, f.token, f.rest)
						return
					}
					select {
					case <-time.After(1300 * time.Millisecond):
					case <-r.Context().Done():
					}
					switch how {
					case "status":
						w.WriteHeader(400)
						_, _ = io.WriteString(w, `{"error":{"message":"the engine's own words"}}`)
					case "error inside":
						events(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"the engine's own words\"}}\n\n")
					default:
						hijack(w, reset)
					}
				}
				engines := []*fakeEngine{newFakeEngine(t, "a", answer)}
				if how == "failover" {
					engines = append(engines, newFakeEngine(t, "b", answer))
				}
				p := startProxy(t, withComments, engines...)
				got := p.post(f.path, f.stream)
				rest, ok := strings.CutPrefix(got.body, comment)
				if got.status != 200 || !ok {
					t.Fatalf("%d %q", got.status, got.body)
				}
				if how == "failover" {
					if rest != f.whole() || got.err != nil {
						t.Errorf("%v %q", got.err, rest)
					}
					return
				}
				if how != "error inside" && got.err == nil {
					t.Error("a clean end")
				}
				if (how != "reset") != strings.Contains(rest, "the engine's own words") || !strings.Contains(rest, "error") {
					t.Errorf("%q", rest)
				}
				if strings.HasPrefix(how, "status") {
					if shape := map[string]string{"messages": `{"type":"error","error":{"type":"invalid_request_error"`, "responses": "event: response.failed"}[f.name]; !strings.Contains(rest, shape) {
						t.Errorf("not the family's shape: %q", rest)
					}
				}
			})
		}
	}
}

// A client that leaves between two comments, or a proxy that stops, ends the
// engine's work as ever.
func TestLeavingBetweenComments(t *testing.T) {
	for _, how := range []string{"leave", "stop", "wait for an engine"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t, "a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			p := startProxy(t, withComments+"retry.wait = \"9s\"\n[drain]\ndelay = \"1ms\"\nlimit = \"100ms\"\n[probe]\ninterval = \"200ms\"", e)
			if how == "wait for an engine" {
				e.CloseClientConnections()
				e.Close()
				eventually(t, "the engine to be down", func() bool { return p.fleet.Engines()[0].State().String() == "down" })
			}
			c := p.dial()
			c.send(rawPost("/v1/messages", families[2].stream))
			if _, err := c.in.Peek(300); err != nil { // headers and a comment
				t.Fatal(err)
			}
			if how == "stop" {
				p.stop()
				if got := c.receive(); got.err == nil || !strings.Contains(got.body, "event: error") {
					t.Errorf("%v %q", got.err, got.body)
				}
				p.shutdown()
				return
			}
			_ = c.Close()
			if how == "leave" {
				within(t, time.Second, "the engine to see it", e.got()[0].gone)
			}
			p.settled()
		})
	}
}
