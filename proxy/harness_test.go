package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/ring"
)

func TestMain(m *testing.M) {
	// fasthttp keeps one process-wide clock for its Date header, and its workers'
	// janitor finds out that the server has stopped when it next wakes.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")) // a probe under way outlives its member by a moment
}

// fakeEngine is an engine whose every answer is written by the test. It lists
// one model, "m", and records what it was sent.
type fakeEngine struct {
	*httptest.Server
	name    string
	answer  http.HandlerFunc // nil: a short chat answer
	toml    string           // more lines of its [[engine]] table
	models  string           // JSON of its list of models; "" lists "m" alone
	metrics string           // its metrics page; "" = it has none

	mu    sync.Mutex
	calls []call
}

// call is one generation request as the engine received it.
type call struct {
	method, uri string
	header      http.Header
	body        string
	gone        chan struct{} // closed when the engine saw the client side leave
}

func newFakeEngine(t testing.TB, name string, answer http.HandlerFunc, settings ...func(*http.Server)) *fakeEngine {
	t.Helper()
	f := &fakeEngine{name: name, answer: answer}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	for _, set := range settings {
		set(f.Config)
	}
	f.Server.Start()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *fakeEngine) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/serve/a")
	switch path {
	case "/health":
		return
	case "/v1/models", "/v4/models":
		f.mu.Lock()
		models := f.models
		f.mu.Unlock()
		if models == "" {
			models = `{"object":"list","data":[{"id":"m","object":"model","max_model_len":1000000}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, models)
		return
	case "/metrics":
		f.mu.Lock()
		metrics := f.metrics
		f.mu.Unlock()
		if metrics == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, metrics)
		return
	case "/version", "/server_info", "/get_server_info", "/model_info", "/v1/loads", "/v4/loads", "/props", "/slots":
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	c := call{method: r.Method, uri: r.RequestURI, header: r.Header.Clone(), body: string(body), gone: make(chan struct{})}
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	stop := context.AfterFunc(r.Context(), func() { close(c.gone) })
	defer func() {
		if stop() && r.Context().Err() != nil {
			close(c.gone) // the handler was faster
		}
	}()
	if f.answer != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}`)
}

// got lists the generation requests that the engine has received.
func (f *fakeEngine) got() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

// proxyUnderTest is a running proxy with its two addresses.
type proxyUnderTest struct {
	*Server
	url, adminURL string
	address       string
	log           *syncBuffer
	stop          context.CancelFunc
	done          chan error
	t             testing.TB
}

// syncBuffer collects log lines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// startProxy runs a proxy before the engines, with extra lines of TOML, and waits
// until every engine was found ready. All its gauges are checked at the end.
func startProxy(t testing.TB, extra string, engines ...*fakeEngine) *proxyUnderTest {
	t.Helper()
	var toml strings.Builder
	fmt.Fprintf(&toml, "listen = \"127.0.0.1:0\"\n%s\n", extra)
	for _, e := range engines {
		url := "url = " + strconv.Quote(e.URL)
		if strings.Contains(e.toml, "url =") {
			url = ""
		}
		fmt.Fprintf(&toml, "[[engine]]\nname = %q\n%s\n%s\n", e.name, url, e.toml)
	}
	p := startProxyTOML(t, toml.String())
	eventually(t, "all engines to be ready", func() bool {
		ready := 0
		for _, e := range p.placer.Snapshot() {
			if e.State == ring.Ready {
				ready++
			}
		}
		return ready == len(engines)
	})
	return p
}

func startProxyTOML(t testing.TB, toml string, before ...func(*Server)) *proxyUnderTest {
	t.Helper()
	if !strings.Contains(toml, "[drain]") {
		toml = strings.Replace(toml, "\n", "\ndrain.delay = \"1ms\"\ndrain.limit = \"5s\"\nprobe.interval = \"200ms\"\n", 1)
	}
	cfg, err := config.Parse("test.toml", []byte(toml))
	if err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	srv, err := New(cfg, Options{Log: newTestLogger(log), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range before {
		f(srv)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &proxyUnderTest{Server: srv, url: "http://" + ln.Addr().String(), address: ln.Addr().String(), adminURL: "http://" + admin.Addr().String(), log: log, stop: stop, done: make(chan error, 1), t: t}
	go func() { p.done <- srv.Serve(ctx, ln, admin) }()
	t.Cleanup(func() {
		p.settled()
		http.DefaultClient.CloseIdleConnections()
		p.shutdown()
		if t.Failed() {
			fmt.Fprintln(os.Stderr, log.String())
		}
	})
	return p
}

// shutdown drains the proxy and waits for its end; a second call does nothing.
func (p *proxyUnderTest) shutdown() {
	p.stop()
	select {
	case err := <-p.done:
		p.done <- err
		if err != nil {
			p.t.Errorf("serve: %v", err)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatal("the proxy did not stop")
	}
}

// settled checks that nothing is charged, running or held any more.
func (p *proxyUnderTest) settled() {
	p.t.Helper()
	eventually(p.t, "all gauges to be 0: "+p.gauges(), func() bool { return p.gauges() == "" })
}

// gauges lists the gauges that should be 0 when nothing runs and are not.
func (p *proxyUnderTest) gauges() string {
	var b bytes.Buffer
	p.metrics.write(p.Server, &b)
	var off []string
	for _, line := range strings.Split(b.String(), "\n") {
		for _, name := range []string{"warmring_inflight_requests ", "warmring_waiting_requests ", "warmring_charged_fresh_tokens ", "warmring_running_decodes ", "warmring_running_prefills ", "warmring_held_context_tokens "} {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0") {
				off = append(off, line)
			}
		}
	}
	sort.Strings(off)
	return strings.Join(off, ", ")
}

func (p *proxyUnderTest) metric(name string) string {
	var b bytes.Buffer
	p.metrics.write(p.Server, &b)
	for _, line := range strings.Split(b.String(), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return rest
		}
	}
	return ""
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // what is waited for comes, however slow the machine
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// post sends body to path with header pairs.
func (p *proxyUnderTest) post(path, body string, header ...string) answer {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return p.do(req, header...)
}

func (p *proxyUnderTest) do(req *http.Request, header ...string) answer {
	p.t.Helper()
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

// chat is a chat completions body: the messages take turns, the user first.
func chat(messages ...string) string { return chatBody("", messages) }

// chatStream is chat with a stream and its usage asked for.
func chatStream(messages ...string) string {
	return chatBody(`"stream":true,"stream_options":{"include_usage":true},`, messages)
}

func chatBody(extra string, messages []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":"m",%s"messages":[`, extra)
	for i, m := range messages {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":%q}`, []string{"user", "assistant"}[i%2], m)
	}
	b.WriteString("]}")
	return b.String()
}

// events writes SSE text piece by piece, flushed.
func events(w http.ResponseWriter, pieces ...string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	for _, piece := range pieces {
		_, _ = io.WriteString(w, piece)
		w.(http.Flusher).Flush()
	}
}

const (
	roleEvent  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	helloEvent = `data: {"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}` + "\n\n"
	stopEvent  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent = `data: {"choices":[],"usage":{"prompt_tokens":16,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":12}}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)
