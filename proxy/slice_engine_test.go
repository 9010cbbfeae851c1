package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// sliceEngine is an engine of a kind that nobody knows, which keeps the prompts that it computed. The test sees each slice
// come and says what becomes of it; short turns are answered when the test lets them.
type sliceEngine struct {
	*fakeEngine
	came    chan sliceRun // a slice has come
	short   chan struct{} // closed, or sent to: short turns are answered
	refuses int           // status of the answers to slices; 0 = they are answered
	forgets bool          // it caches nothing
	untold  bool          // it caches, and says nothing of it in short turns' and whole answers
	after   time.Duration // how long a slice takes when the test does not hold it
	held    bool          // slices wait for the test's word

	mu     sync.Mutex
	slices []string // bodies
	wholes []string
	order  []string // what was answered: "slice", "whole", "short"
	prompt int      // bytes of the longest prompt so far
}

// sliceRun is one slice at the engine.
type sliceRun struct {
	body string
	gone <-chan struct{}
	done chan struct{} // close it to have the slice answered
}

func newSliceEngine(t *testing.T, name string) *sliceEngine {
	e := &sliceEngine{came: make(chan sliceRun, 256), short: make(chan struct{})}
	e.fakeEngine = newFakeEngine(t, name, e.answerTo)
	e.toml = `kind = "custom"`
	return e
}

func (e *sliceEngine) answerTo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	body := string(b)
	var q struct {
		Stream    bool
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}
	_ = json.Unmarshal(b, &q)
	text := 0
	for _, m := range q.Messages {
		text += len(m.Content)
	}
	switch {
	case q.MaxTokens == 1 && !q.Stream && r.Header.Get("X-Session-Id") != "short":
		e.slice(w, r, body, text)
	case len(body) > laneLong:
		cached := e.note(&e.wholes, "whole", body, text)
		if q.Stream {
			e.stream(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":%d}}}`, text/4, cached)
	default:
		if r.Header.Get("X-Quick") == "" {
			select {
			case <-e.short:
			case <-r.Context().Done():
				return
			}
		}
		e.note(nil, "short", body, 0)
		e.stream(w)
	}
}

func (e *sliceEngine) stream(w http.ResponseWriter) {
	e.mu.Lock()
	usage := usageEvent
	if e.untold {
		usage = `data: {"choices":[],"usage":{"prompt_tokens":16,"completion_tokens":5}}` + "\n\n"
	}
	e.mu.Unlock()
	events(w, roleEvent, helloEvent, stopEvent, usage, doneEvent)
}

func (e *sliceEngine) slice(w http.ResponseWriter, r *http.Request, body string, text int) {
	run := sliceRun{body: body, gone: r.Context().Done(), done: make(chan struct{})}
	e.mu.Lock()
	held, after := e.held, e.after
	e.mu.Unlock()
	e.came <- run
	if held {
		select {
		case <-run.done:
		case <-run.gone:
			return
		}
	} else if after > 0 {
		time.Sleep(after)
	}
	e.mu.Lock()
	refuses := e.refuses
	e.mu.Unlock()
	cached := e.note(&e.slices, "slice", body, text)
	w.Header().Set("Content-Type", "application/json")
	if refuses != 0 {
		w.WriteHeader(refuses)
		fmt.Fprint(w, `{"error":{"message":"the secret word of a slice","code":400}}`)
		return
	}
	fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"the secret word of a slice"},"finish_reason":"length"}],"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, text/4, cached)
}

// note keeps an account of what was answered and tells how many tokens of it were cached.
func (e *sliceEngine) note(list *[]string, what, body string, text int) (cached int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if list != nil {
		*list = append(*list, body)
	}
	e.order = append(e.order, what)
	cached = min(e.prompt, text) / 4
	e.prompt = max(e.prompt, text)
	if e.forgets {
		return 0
	}
	return cached
}

func (e *sliceEngine) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *sliceEngine) saw() (slices, wholes []string, order []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.slices...), append([]string(nil), e.wholes...), append([]string(nil), e.order...)
}

// contended has one short turn answered, after which long prompts go in slices.
func contended(t *testing.T, p *proxyUnderTest) {
	t.Helper()
	expectWhole(t, "a short turn", wait(t, "a short turn", later(p, context.Background(), chatStream("hi"), "X-Session-Id", "short", "X-Quick", "1")))
}

// expectOnce checks that the engine was sent the client's body, byte for byte, once, after slices that are shorter and grow.
func (e *sliceEngine) expectOnce(t *testing.T, body string, atLeast int) {
	t.Helper()
	slices, wholes, _ := e.saw()
	if len(wholes) != 1 || wholes[0] != body {
		t.Errorf("%s was sent %d whole prompts, want the client's own once", e.name, len(wholes))
	}
	if len(slices) < atLeast {
		t.Errorf("%s was sent %d slices, want %d or more", e.name, len(slices), atLeast)
	}
	for i, s := range slices {
		if len(s) > len(body) || i > 0 && len(s) < len(slices[i-1]) || !json.Valid([]byte(s)) {
			t.Errorf("slice %d has %d bytes, the one before %d, the whole %d", i, len(s), len(slices[max(i-1, 0)]), len(body))
		}
	}
}

// between sends a long prompt, lets its first slice end while a short turn waits, and returns with the long one in the proxy.
func between(t *testing.T, p *proxyUnderTest, e *sliceEngine, ctx context.Context, body string) (long, short <-chan reply) {
	t.Helper()
	contended(t, p)
	e.set(func() { e.held = true })
	long = later(p, ctx, body, "X-Session-Id", "long")
	first := wait(t, "the first slice", e.came)
	time.Sleep(150 * time.Millisecond) // it runs, which earns the right to wait
	short = later(p, context.Background(), chatStream("short turn"), "X-Session-Id", "short")
	eventually(t, "the short turn to come", func() bool { return p.upstreams()[e.name].lanes.view().Waiting > 0 })
	close(first.done)
	eventually(t, "the long one to be in the proxy", func() bool { return p.upstreams()[e.name].lanes.view().Back == 1 })
	e.set(func() { e.held = false })
	return long, short
}

// noSecret checks that nothing of an answer to a slice reached a client.
func noSecret(t *testing.T, r reply) {
	t.Helper()
	if strings.Contains(r.text, "secret") || r.err != nil && strings.Contains(r.err.Error(), "secret") {
		t.Errorf("the client sees an answer to a slice: %.300q %v", r.text, r.err)
	}
}
