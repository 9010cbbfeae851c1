package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// C030, C031, C033: what the engine compressed is passed on compressed, under its
// own headers; what it said about the length is true.
func TestCompressedAnswersPassUntouched(t *testing.T) {
	whole := `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`
	stream := helloEvent + stopEvent + doneEvent
	for _, tc := range []struct{ name, coding, contentType, body string }{
		{"gzip JSON", "gzip", "application/json", gzipped(whole)},
		{"br label on JSON", "br", "application/json", whole},
		{"gzip stream", "gzip", "text/event-stream", gzipped(stream)},
	} {
		for _, accepts := range []string{"gzip", ""} {
			t.Run(tc.name+" accept "+accepts, func(t *testing.T) {
				e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
					if got := r.Header.Get("Accept-Encoding"); got != accepts {
						t.Errorf("engine was asked for %q, client asked for %q", got, accepts)
					}
					w.Header().Set("Content-Encoding", tc.coding)
					w.Header().Set("Content-Type", tc.contentType)
					_, _ = io.WriteString(w, tc.body)
				})
				p := startProxy(t, "", e)
				lines := []string{}
				if accepts != "" {
					lines = append(lines, "Accept-Encoding: "+accepts)
				}
				c := p.dial()
				c.send(rawPost("/v1/chat/completions", chatStream("hi"), lines...))
				got := c.receive()
				if got.err != nil || got.body != tc.body || got.header.Get("Content-Encoding") != tc.coding || got.header.Get("Content-Type") != tc.contentType {
					t.Errorf("%v %v %q", got.err, got.header, got.body)
				}
				if l := got.header.Get("Content-Length"); l != "" && l != itoa(len(tc.body)) {
					t.Errorf("length %s of %d bytes", l, len(tc.body))
				}
			})
		}
	}
}

// C033: exactly the hop-by-hop headers stay behind, both ways.
func TestHopByHopHeadersStayBehind(t *testing.T) {
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Connection", "close, X-Engine-Tmp")
		h.Set("X-Engine-Tmp", "1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-End", "2")
		_, _ = io.WriteString(w, "{}")
	})
	p := startProxy(t, "", e)
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chat("hi"), "Connection: close, X-Trace-Tmp", "X-Trace-Tmp: 1", "Keep-Alive: timeout=9", "TE: trailers", "Trailer: X-Sum",
		"Proxy-Authorization: Basic eDp5", "Proxy-Connection: keep-alive", "Upgrade: h2c", "X-End: 1", "X-Empty:"))
	got := c.receive()
	if got.status != 200 || got.header.Get("X-End") != "2" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	for _, name := range []string{"X-Engine-Tmp", "Keep-Alive", "Proxy-Authenticate"} {
		if got.header.Get(name) != "" {
			t.Errorf("the client got %s", name)
		}
	}
	h := e.got()[0].header
	for _, name := range []string{"Connection", "X-Trace-Tmp", "Keep-Alive", "Te", "Trailer", "Proxy-Authorization", "Proxy-Connection", "Upgrade", "Transfer-Encoding"} {
		if _, there := h[name]; there {
			t.Errorf("the engine got %s: %q", name, h[name])
		}
	}
	if _, there := h["X-Empty"]; !there || h.Get("X-End") != "1" {
		t.Errorf("the engine got %v", h)
	}
	if !c.closed() {
		t.Error("the client asked for the connection to be closed")
	}
}

// C035: credentials pass as they are; none is invented.
func TestCredentialsPassAsTheyAre(t *testing.T) {
	for name, lines := range map[string][]string{
		"none":           nil,
		"lower case":     {"authorization: bearer k"},
		"x-api-key":      {"x-api-key: k"},
		"both":           {"authorization: Bearer k1", "x-api-key: k2"},
		"api-key, empty": {"api-key: k", "Authorization: Bearer "},
	} {
		e := newFakeEngine(t, "a", nil)
		p := startProxy(t, "", e)
		c := p.dial()
		c.send(rawPost("/v1/chat/completions", chat("hi"), lines...))
		if got := c.receive(); got.status != 200 {
			t.Errorf("%s: %d", name, got.status)
		}
		h := e.got()[0].header
		var got []string
		for _, n := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
			got = append(got, h.Values(n)...)
		}
		var want []string
		for _, n := range []string{"authorization", "x-api-key", "api-key"} {
			for _, l := range lines {
				if k, v, _ := strings.Cut(l, ":"); strings.EqualFold(k, n) {
					want = append(want, strings.TrimSpace(v))
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: engine got %q, client sent %q", name, got, want)
		}
	}
}

// C160, C206: an engine's own key replaces the client's, which it must not see.
func TestTheEnginesKeyReplacesTheClients(t *testing.T) {
	t.Setenv("WARMRING_TEST_KEY", "kk-engine")
	e := newFakeEngine(t, "a", nil)
	e.toml = "api_key_env = \"WARMRING_TEST_KEY\""
	p := startProxy(t, "", e)
	p.post("/v1/chat/completions", chat("hi"), "Authorization", "Bearer kk-client", "X-Api-Key", "kk-client", "Api-Key", "kk-client")
	h := e.got()[0].header
	if h.Get("Authorization") != "Bearer kk-engine" || len(h["Authorization"]) != 1 || h.Get("X-Api-Key") != "" || h.Get("Api-Key") != "" {
		t.Errorf("%v", h)
	}
}

// C037, C054: end-to-end headers reach the client; streams tell nginx not to
// collect them.
func TestStreamHeaders(t *testing.T) {
	for name, own := range map[string]string{"the engine says it": "no", "the engine says yes": "yes", "the engine says nothing": ""} {
		e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			if own != "" {
				w.Header().Set("X-Accel-Buffering", own)
			}
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("X-Request-Id", "r9")
			w.Header().Set("Openai-Processing-Ms", "7")
			w.Header().Add("X-Twice", "1")
			w.Header().Add("X-Twice", "2")
			w.Header().Add("Set-Cookie", "a=b; Path=/")
			w.Header().Add("Set-Cookie", "c=d")
			events(w, helloEvent, stopEvent, doneEvent)
		})
		p := startProxy(t, "", e)
		h := p.post("/v1/chat/completions", chatStream("hi")).header
		want := own
		if want == "" {
			want = "no"
		}
		if h.Get("X-Accel-Buffering") != want || h.Get("Cache-Control") != "no-cache" || h.Get("X-Request-Id") != "r9" || h.Get("Openai-Processing-Ms") != "7" ||
			!slices.Equal(h["X-Twice"], []string{"1", "2"}) || !slices.Equal(h["Set-Cookie"], []string{"a=b; Path=/", "c=d"}) || h.Get("Content-Type") != "text/event-stream; charset=utf-8" {
			t.Errorf("%s: %v", name, h)
		}
		if h.Get("Server") != "" {
			t.Errorf("a Server header was invented: %q", h.Get("Server"))
		}
	}
}

// C185: what Anthropic's clients send and engines answer in their words passes.
func TestAnthropicHeadersPass(t *testing.T) {
	const body = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(529)
		_, _ = io.WriteString(w, body)
	})
	p := startProxy(t, "", e)
	c := p.dial()
	c.send(rawPost("/v1/messages?beta=true", `{"model":"m","messages":[]}`, "anthropic-version: 2023-06-01", "anthropic-beta: b1", "anthropic-beta: b2,b3", "x-api-key: k"))
	got := c.receive()
	if got.status != 529 || got.body != body {
		t.Errorf("%d %s", got.status, got.body)
	}
	h := e.got()[0].header
	if h.Get("Anthropic-Version") != "2023-06-01" || !slices.Equal(h["Anthropic-Beta"], []string{"b1", "b2,b3"}) || h.Get("X-Api-Key") != "k" {
		t.Errorf("%v", h)
	}
}

// The proxy's own headers are consumed, guarded ones removed, unless trusted.
func TestOwnAndInternalHeaders(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		e := newFakeEngine(t, "a", nil)
		extra := ""
		if trusted {
			extra = "headers.trust_internal = true"
		}
		p := startProxy(t, extra, e)
		p.post("/v1/chat/completions", chat("hi"), "X-Warmring-Session", "s", "X-Warmring-Parent", "q", "X-Data-Parallel-Rank", "3", "X-Vllm-Priority", "-9", "X-Session-Id", "s")
		h := e.got()[0].header
		if h.Get("X-Warmring-Session") != "" || h.Get("X-Warmring-Parent") != "" || h.Get("X-Session-Id") != "s" {
			t.Errorf("%v", h)
		}
		if got := h.Get("X-Data-Parallel-Rank") != "" && h.Get("X-Vllm-Priority") != ""; got != trusted {
			t.Errorf("trusted %v: %v", trusted, h)
		}
	}
}

// One id names a request at the client, in the log, at the engine and in
// /api/explain.
func TestTheRequestIDIsTheSameEverywhere(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	for _, id := range []string{"", "req-77"} {
		lines := []string{}
		if id != "" {
			lines = append(lines, "X-Request-Id: "+id)
		}
		c := p.dial()
		c.send(rawPost("/v1/chat/completions", chat("hi"), lines...))
		got := c.receive().header.Get("X-Request-Id")
		calls := e.got()
		if got == "" || (id != "" && got != id) || calls[len(calls)-1].header.Get("X-Request-Id") != got || len(calls[len(calls)-1].header["X-Request-Id"]) != 1 {
			t.Errorf("client has %q, engine %q", got, calls[len(calls)-1].header["X-Request-Id"])
		}
		if _, ok := p.recent.explain(got); !ok {
			t.Errorf("no explanation of %q", got)
		}
	}
	// One that would break a log line is not taken over, but still passes.
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chat("hi"), "X-Request-Id: a b\"c"))
	if got := c.receive().header.Get("X-Request-Id"); got == "" || strings.ContainsAny(got, " \"") {
		t.Errorf("client has %q", got)
	}
}
