package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// rawClient speaks HTTP byte by byte, as no well-bred client does.
type rawClient struct {
	*net.TCPConn
	in *bufio.Reader
	t  testing.TB
}

func (p *proxyUnderTest) dial() *rawClient {
	p.t.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	p.t.Cleanup(func() { _ = c.Close() })
	return &rawClient{c.(*net.TCPConn), bufio.NewReader(c), p.t}
}

func (c *rawClient) send(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		if _, err := io.WriteString(c.TCPConn, part); err != nil {
			c.t.Fatalf("sending: %v", err)
		}
	}
}

// receive reads one answer with its whole body.
func (c *rawClient) receive() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("reading the answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// closed tells that the server has closed the connection and nothing is left.
func (c *rawClient) closed() bool {
	c.t.Helper()
	n, err := io.Copy(io.Discard, c.in)
	return n == 0 && (err == nil || !isTimeoutError(err))
}

func isTimeoutError(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

// request writes a POST with a body and more header lines.
func rawPost(path, body string, lines ...string) string {
	var b strings.Builder
	b.WriteString("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
	length := true
	for _, l := range lines {
		b.WriteString(l + "\r\n")
		length = length && !strings.HasPrefix(strings.ToLower(l), "transfer-encoding")
	}
	if length {
		b.WriteString("Content-Length: " + itoa(len(body)) + "\r\n")
	}
	return b.String() + "\r\n" + body
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// chunked writes body in the chunked coding, in chunks of a size.
func chunked(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(size, len(body))
		b.WriteString(hexOf(n) + "\r\n" + body[:n] + "\r\n")
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

func hexOf(n int) string {
	const digits = "0123456789abcdef"
	if n < 16 {
		return digits[n : n+1]
	}
	return hexOf(n/16) + digits[n%16:n%16+1]
}

// hijack takes the engine's connection over for an answer that net/http would
// not write.
func hijack(w http.ResponseWriter, f func(c *net.TCPConn)) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	f(c.(*net.TCPConn))
}

// reset makes the next Close of c a RST.
func reset(c *net.TCPConn) { _ = c.SetLinger(0) }

// within waits for ch.
func within(t testing.TB, d time.Duration, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("waited %v in vain for %s", d, what)
	}
}

// family is one API family as a client uses it.
type family struct {
	name, path   string
	body, stream string // requests, whole and streaming
	preamble     string // events before any work
	token        string // an event that commits
	rest         string // up to the family's final event
	lost         string // what a client is told when the engine dies
}

var families = []family{
	{
		name: "chat", path: "/v1/chat/completions", body: chat("hi"), stream: `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		preamble: roleEvent, token: helloEvent, rest: stopEvent + doneEvent, lost: `data: {"error":`,
	},
	{
		name: "completions", path: "/v1/completions", body: `{"model":"m","prompt":"hi"}`, stream: `{"model":"m","stream":true,"prompt":"hi"}`,
		preamble: ": wait\n\n", token: `data: {"choices":[{"index":0,"text":"hello","finish_reason":null}]}` + "\n\n",
		rest: `data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}` + "\n\n" + doneEvent, lost: `data: {"error":`,
	},
	{
		name: "messages", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		stream:   `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		preamble: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":3,\"output_tokens\":0}}}\n\n",
		token:    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n",
		rest:     "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		lost:     "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"",
	},
	{
		name: "responses", path: "/v1/responses", body: `{"model":"m","input":"hi"}`, stream: `{"model":"m","stream":true,"input":"hi"}`,
		preamble: "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\nevent: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1,\"response\":{\"id\":\"resp_1\"}}\n\n",
		token:    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"item_id\":\"i\",\"output_index\":0,\"content_index\":0,\"delta\":\"hello\"}\n\n",
		rest:     "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
		lost:     "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":3,",
	},
}

// finals is a whole stream of the family.
func (f family) whole() string { return f.preamble + f.token + f.rest }

// streamingEngine answers every request with these events.
func streamingEngine(t testing.TB, name string, pieces ...string) *fakeEngine {
	return newFakeEngine(t, name, func(w http.ResponseWriter, _ *http.Request) { events(w, pieces...) })
}

func (p *proxyUnderTest) get(path string, header ...string) answer {
	p.t.Helper()
	req, err := http.NewRequest("GET", p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(req, header...)
}

// newFakeEngineAt begins to listen at an address that was closed so far.
func newFakeEngineAt(t testing.TB, name, address string) *fakeEngine {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeEngine{name: name}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	_ = f.Listener.Close()
	f.Listener = ln
	f.Start()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}
