package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warmring/warmring/engines"
)

// poisoned answers prompts that say poison with status, and all others well.
func poisoned(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "poison") {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "the prompt does that")
			return
		}
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`)
	}
}

// C164: one client repeats a prompt that makes every engine fail. Nobody else
// notices: sessions stay where they are and are answered.
func TestAPoisonPromptTakesNoEngineFromAnybodyElse(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		path   string
		body   func(i int) string
		header func(i int) []string
	}{
		"one session goes on": {500, "/v1/chat/completions", func(i int) string { return chat("poison", "no", strings.Repeat("again ", i)) }, func(int) []string { return []string{"X-Session-Id", "bad"} }},
		"no session":          {500, "/v1/chat/completions", func(int) string { return chat("poison") }, func(int) []string { return nil }},
		"a session each time": {502, "/v1/chat/completions", func(int) string { return chat("poison") }, func(i int) []string { return []string{"X-Session-Id", fmt.Sprint("bad", i)} }},
		"too slow":            {504, "/v1/chat/completions", func(i int) string { return chat(fmt.Sprint("poison ", i)) }, func(int) []string { return nil }},
		"no generation":       {500, "/v1/embeddings", func(int) string { return `{"model":"m","input":"poison"}` }, func(int) []string { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newFakeEngine(t, "a", poisoned(tc.status)), newFakeEngine(t, "b", poisoned(tc.status))
			p := startProxy(t, "", a, b)
			homes := map[string]string{}
			ask := func(session string, turn int) string {
				messages := []string{"I am " + session, "hi", "turn 0", "well", "turn 1"}
				body := chat(messages[:3+2*turn]...)
				got := p.post("/v1/chat/completions", body, "X-Session-Id", session)
				if got.status != 200 {
					t.Fatalf("%s: %d %s", session, got.status, got.body)
				}
				return got.header.Get("X-Warmring-Engine")
			}
			for i := range 8 {
				session := fmt.Sprint("good", i)
				homes[session] = ask(session, 0)
			}
			for i := range 12 {
				if got := p.post(tc.path, tc.body(i), tc.header(i)...); got.status != tc.status || got.body != "the prompt does that" {
					t.Fatalf("poison %d: %d %s", i, got.status, got.body)
				}
			}
			for _, e := range p.fleet.Engines() {
				if e.State() != engines.Ready {
					t.Errorf("%s is %s: %s", e.Name, e.State(), e.Reason())
				}
			}
			for session, home := range homes {
				if now := ask(session, 1); now != home {
					t.Errorf("%s moved from %s to %s", session, home, now)
				}
			}
		})
	}
}

// An engine that fails whatever it is sent becomes a last resort: new sessions go
// elsewhere. When all do, they are asked all the same.
func TestAFailingEngineIsALastResort(t *testing.T) {
	var bad, all atomic.Bool
	answer := func(always bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if all.Load() || always && bad.Load() {
				w.WriteHeader(500)
				return
			}
			poisoned(500)(w, r)
		}
	}
	a, b := newFakeEngine(t, "a", answer(true)), newFakeEngine(t, "b", answer(false))
	p := startProxy(t, "", a, b)
	bad.Store(true)
	n := 0
	turn := func() answerOf {
		n++
		got := p.post("/v1/chat/completions", chat(fmt.Sprint("task ", n)), "X-Session-Id", fmt.Sprint("s", n))
		return answerOf{got.status, got.header.Get("X-Warmring-Engine")}
	}
	failing := p.fleet.ByName("a")
	for range 200 {
		if got := turn(); got.status != 200 || got.engine != "b" {
			t.Fatalf("turn %d: %+v", n, got)
		}
		if failing.State() == engines.Busy {
			break
		}
	}
	if failing.State() != engines.Busy {
		t.Fatalf("a is %s after %d turns, %d of them sent to it", failing.State(), n, len(a.got()))
	}
	before := len(a.got())
	for range 10 {
		turn()
	}
	if more := len(a.got()) - before; more > 1 { // one is the trial
		t.Errorf("%d new sessions were sent to it", more)
	}
	all.Store(true)
	for range 10 {
		if got := turn(); got.status != 500 {
			t.Fatalf("with all engines failing: %+v", got)
		}
	}
	all.Store(false)
	bad.Store(false)
	if got := turn(); got.status != 200 {
		t.Errorf("the first after the end of all failures: %+v", got)
	}
	eventually(t, "both to be ready", func() bool {
		turn()
		return failing.State() == engines.Ready && p.fleet.ByName("b").State() == engines.Ready
	})
}

type answerOf struct {
	status int
	engine string
}
