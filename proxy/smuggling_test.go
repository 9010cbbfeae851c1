package proxy

import (
	"io"
	"strings"
	"testing"
)

// Requests whose end two readers could see in two places, or that are no HTTP at
// all, are refused in the family's shape, and nothing of them reaches an engine.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	const path = "/v1/messages"
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\n"
	smuggled := "POST /flush_cache HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	for name, request := range map[string]string{
		"C024 length and coding":   head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"C024 coding and length":   head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"two lengths":              head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"two equal lengths":        head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"signed length":            head + "Content-Length: +2\r\n\r\n{}",
		"hex length":               head + "Content-Length: 0x2\r\n\r\n{}",
		"coding misspelt":          head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two codings":              head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"two coding lines":         head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"space before colon":       head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"space in name":            head + "X Y: 1\r\nContent-Length: 2\r\n\r\n{}",
		"no host":                  "POST " + path + " HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
		"two hosts":                head + "Host: y\r\nContent-Length: 2\r\n\r\n{}",
		"NUL in a value":           head + "X: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
		"bare CR in a value":       head + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
		"LF in a chunk extension":  head + "Transfer-Encoding: chunked\r\n\r\n2;x\ny\r\n{}\r\n0\r\n\r\n",
		"negative chunk":           head + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
		"chunk longer than said":   head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
		"enormous chunk":           head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"control byte in the path": "POST " + path + "\x01 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"space in the path":        "POST " + path + " x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"tab in the path":          "POST " + path + "\tx HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"bad method":               "PO(ST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/2 preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no version":               "POST " + path + "\r\nHost: x\r\n\r\n",
		"a folded line":            head + "X-Long: a\r\n Content-Length: 3\r\nContent-Length: 2\r\n\r\n{}",
		"a folded first line":      head[:len(head)-9] + " X: 1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"garbage":                  "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
		"headers without end":      head + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 40),
		"one header without end":   head + "X: " + strings.Repeat("y", 40_000),
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, "server.read_timeout = \"2s\"", e)
			c := p.dial()
			go func() { _, _ = c.Write([]byte(request)) }()
			got := c.receive()
			if got.status < 400 || got.status > 499 || !strings.Contains(got.body, `"error"`) {
				t.Errorf("%d %s", got.status, got.body)
			}
			if strings.HasPrefix(request, "POST "+path+" HTTP") && !strings.Contains(got.body, `{"type":"error"`) {
				t.Errorf("not the family's shape: %s", got.body)
			}
			c.closed() // must end: what follows is never taken for a request
			for _, call := range e.got() {
				t.Errorf("the engine got %s %s %q", call.method, call.uri, call.body)
			}
		})
	}
}

// What is odd but has one meaning is served, and is unambiguous for the engine.
func TestOddFramingIsMadePlain(t *testing.T) {
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
	body := chat("hi")
	for name, request := range map[string]string{
		"chunked":        head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 7),
		"chunked, upper": head + "TRANSFER-ENCODING: Chunked\r\n\r\n" + chunked(body, 7),
		"trailers":       head + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.TrimSuffix(chunked(body, 9), "\r\n") + "X-Sum: 1\r\n\r\n",
		"extensions":     head + "Transfer-Encoding: chunked\r\n\r\n" + hexOf(len(body)) + ";a=b\r\n" + body + "\r\n0\r\n\r\n",
		"absolute form":  "POST http://elsewhere:99/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body,
		"upper case":     "POST /v1/chat/completions HTTP/1.1\r\nHOST: x\r\nCONTENT-LENGTH: " + itoa(len(body)) + "\r\n\r\n" + body,
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, "", e)
			c := p.dial()
			c.send(request)
			got := c.receive()
			calls := e.got()
			if got.status != 200 || len(calls) != 1 {
				t.Fatalf("%d %s, %d calls", got.status, got.body, len(calls))
			}
			call := calls[0]
			if call.body != body || call.header.Get("Content-Length") != itoa(len(body)) || call.header.Get("Transfer-Encoding") != "" || call.header.Get("Trailer") != "" || call.uri != "/v1/chat/completions" {
				t.Errorf("engine got %s %v %q", call.uri, call.header, call.body)
			}
		})
	}
}

// C058: several requests over one connection, also before the first is answered.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chat("one")) + rawPost("/v1/messages", "{}") + "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	for range 2 {
		if got := c.receive(); got.status != 200 || !strings.Contains(got.body, "chat.completion") {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if got := c.receive(); got.status != 200 || !strings.Contains(got.body, `"object":"list"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if calls := e.got(); len(calls) != 2 || calls[0].body != chat("one") || calls[1].body != "{}" {
		t.Errorf("%+v", calls)
	}
}

// HTTP/1.0 cannot take chunks: nginx speaks it to its upstreams unless told not
// to.
func TestHTTP10Clients(t *testing.T) {
	e := streamingEngine(t, "a", roleEvent, helloEvent, stopEvent, doneEvent)
	p := startProxy(t, "", e)
	body := chatStream("hi")
	c := p.dial()
	c.send("POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body)
	// The raw bytes: a client library would take a chunked coding off unasked.
	raw, err := io.ReadAll(c.in)
	head, answer, _ := strings.Cut(string(raw), "\r\n\r\n")
	if err != nil || !strings.Contains(head, " 200 ") || strings.Contains(strings.ToLower(head), "transfer-encoding") || answer != roleEvent+helloEvent+stopEvent+doneEvent {
		t.Errorf("%v\n%s\n\n%s", err, head, answer)
	}
	for _, version := range []string{"HTTP/2.0", "HTTP/9.9", "HTTP/1.2"} {
		c := p.dial()
		c.send("POST /v1/chat/completions " + version + "\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		if got := c.receive(); got.status != 505 && got.status != 400 {
			t.Errorf("%s: %d", version, got.status)
		}
	}
}

// Admin paths are refused however they are spelt.
func TestEngineAdminPathsAreRefused(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "paths.allow = [\"/slow_down\"]", e)
	for _, uri := range []string{"/flush_cache", "/v1/../flush_cache", "/%66lush_cache", "//flush_cache", "/flush_cache/", "/FLUSH_CACHE", "/abort_request?x", "/v1/load_lora_adapter", "http://x/sleep", "/metrics", "/%2566lush_cache"} {
		c := p.dial()
		c.send(rawPost(uri, "{}"))
		if got := c.receive(); got.status != 403 {
			t.Errorf("%s: %d", uri, got.status)
		}
	}
	if n := len(e.got()); n != 0 {
		t.Errorf("the engine got %d", n)
	}
	if got := p.post("/slow_down", "{}"); got.status != 200 || len(e.got()) != 1 {
		t.Errorf("an allowed path: %d", got.status)
	}
}

// Upgrades: WebSocket is a clear 501; an offer of h2c, which some clients make
// with every request, is politely ignored.
func TestUpgrades(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	c := p.dial()
	c.send("GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n")
	if got := c.receive(); got.status != 501 || !strings.Contains(got.body, "WebSocket") {
		t.Errorf("%d %s", got.status, got.body)
	}
	c = p.dial()
	c.send(rawPost("/v1/chat/completions", chat("hi"), "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"))
	if got := c.receive(); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if h := e.got()[0].header; h.Get("Upgrade") != "" || h.Get("Http2-Settings") != "" || h.Get("Connection") != "" {
		t.Errorf("%v", h)
	}
}
