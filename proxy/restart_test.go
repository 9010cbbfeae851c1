package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// C111: an engine that was restarted in less time than probes notice. What
// requests meet makes the proxy look at once: probes here are a minute apart.
func TestRequestsFindOutAQuickRestart(t *testing.T) {
	for name, restart := range map[string]func(e *fakeEngine, cached *atomic.Int64){
		"its kept connections are dead": func(e *fakeEngine, _ *atomic.Int64) { e.CloseClientConnections() },
		"nothing is cached any more":    func(_ *fakeEngine, cached *atomic.Int64) { cached.Store(0) },
	} {
		t.Run(name, func(t *testing.T) {
			var cached atomic.Int64
			cached.Store(5000)
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":6000,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, cached.Load())
			})
			page := func(start int) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.metrics = fmt.Sprintf("process_start_time_seconds %d\nvllm:prompt_tokens_total{engine=\"0\"} 5\n", start)
			}
			page(1000)
			p := startProxy(t, "probe.interval = \"1m\"\n[drain]\ndelay = \"1ms\"\nlimit = \"5s\"\n", e)
			messages := []string{strings.Repeat("all the words there are ", 1000)}
			ask := func() {
				if got := p.post("/v1/chat/completions", chat(messages...), "X-Session-Id", "s"); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				messages = append(messages, "hi", "go on")
			}
			ask()
			ask()
			page(2000)
			restarts := func() uint64 { return p.fleet.ByName("a").Status().Counts.Restarts }
			ask()
			if n := restarts(); n != 0 {
				t.Fatalf("%d restarts before any sign of one", n)
			}
			restart(e, &cached)
			ask()
			eventually(t, "the restart to be found out", func() bool { return restarts() == 1 })
		})
	}
}
