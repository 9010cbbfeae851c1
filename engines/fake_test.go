package engines

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an engine whose pages a test sets while it runs. A page that is not set is a 404.
type fake struct {
	*httptest.Server
	mu    sync.Mutex
	pages map[string]answer
	asked map[string]int
	key   string // demanded as Bearer token, "" = none
	hang  bool   // health never answers
}

type answer struct {
	status int
	body   string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{pages: map[string]answer{}, asked: map[string]int{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// newFakeAt listens at an address again, as an engine that was restarted does.
func newFakeAt(t *testing.T, address string) *fake {
	t.Helper()
	f := &fake{pages: map[string]answer{}, asked: map[string]int{}}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = httptest.NewUnstartedServer(f)
	_ = f.Listener.Close()
	f.Listener = listener
	f.Start()
	t.Cleanup(f.Close)
	return f
}

func (f *fake) set(path string, status int, body string) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages[path] = answer{status, body}
	return f
}

func (f *fake) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if path != "" {
		return f.asked[path]
	}
	all := 0
	for _, n := range f.asked {
		all += n
	}
	return all
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked[r.URL.Path]++
	a, ok := f.pages[r.URL.Path]
	key, hang := f.key, f.hang && r.URL.Path == "/health"
	f.mu.Unlock()
	switch {
	case hang:
		<-r.Context().Done()
	case key != "" && r.Header.Get("Authorization") != "Bearer "+key:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
	default:
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}
}

const listTiny = `{"object":"list","data":[{"id":"tiny","object":"model","max_model_len":32768}]}`

// plain is an engine with nothing but health and a list of models.
func (f *fake) plain() *fake { return f.set("/health", 200, "").set("/v1/models", 200, listTiny) }

// captured serves the pages of a real engine.
func (f *fake) captured(t *testing.T, kind string, files map[string]string) *fake {
	t.Helper()
	for path, file := range files {
		data, err := os.ReadFile("testdata/" + kind + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		status := 200
		if head, body, ok := bytes.Cut(data, []byte("\r\n\r\n")); ok {
			data = body
			if !strings.Contains(string(head[:16]), " 200") {
				continue
			}
		}
		f.set(path, status, string(data))
	}
	return f
}

func (f *fake) vllm(t *testing.T) *fake {
	return f.captured(t, "vllm", map[string]string{"/health": "health.http", "/v1/models": "models.http", "/version": "version.http", "/metrics": "metrics.txt", "/v1/completions": "completions-json.http"})
}

func (f *fake) sglang(t *testing.T) *fake {
	return f.captured(t, "sglang", map[string]string{"/health": "health.http", "/v1/models": "models.http", "/version": "version.http", "/model_info": "model_info.http", "/v1/loads": "loads.http", "/v1/chat/completions": "chat.http"})
}

// watched is a fleet that runs, and what it announced.
type watched struct {
	*Fleet
	t   *testing.T
	log *syncBuffer

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	heard   []heard
	inside  int
}

type heard struct {
	name  string
	what  Change
	state State
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func watch(t *testing.T, opt FleetOptions, specs ...Spec) *watched {
	t.Helper()
	w := &watched{t: t, changed: make(chan struct{}), log: &syncBuffer{}}
	opt.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opt.OnChange = w.hear
	fleet, err := NewFleet(specs, opt)
	if err != nil {
		t.Fatal(err)
	}
	w.Fleet = fleet
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("Run does not end with its context")
		}
	})
	return w
}

func (w *watched) hear(e *Engine, what Change) {
	state := e.State() // must not deadlock: no lock is held here
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside++; w.inside > 1 {
		w.t.Error("two calls at a time")
	}
	w.heard = append(w.heard, heard{e.Name, what, state})
	close(w.changed)
	w.changed = make(chan struct{})
	w.inside--
}

// until waits for a condition, looked at after each change and every few milliseconds.
func (w *watched) until(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.After(15 * time.Second)
	for !condition() {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			w.t.Fatalf("never: %s; engines: %+v", what, w.Status())
		}
	}
}

func (w *watched) untilState(name string, want State) {
	w.t.Helper()
	w.until(name+" is "+want.String(), func() bool { return w.ByName(name).State() == want })
}

func (w *watched) heardChange(name string, what Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if h.name == name && h.what&what != 0 {
			return true
		}
	}
	return false
}
