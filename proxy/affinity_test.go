package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// fleetOf is n engines whose answers take a moment, so that requests overlap.
func fleetOf(t testing.TB, n int, answer http.HandlerFunc) []*fakeEngine {
	var all []*fakeEngine
	for i := range n {
		all = append(all, newFakeEngine(t, string(rune('a'+i)), answer))
	}
	return all
}

func engineOf(a answer) string { return a.header.Get("X-Warmring-Engine") }

// C129, C203: on every API family a session's turns stay together, with an id and
// without one, and the metric says by what they were recognised.
func TestEveryFamilyKeepsItsSessions(t *testing.T) {
	turn := func(f family, session string, n, length int) string {
		var b strings.Builder
		text := func(role, words string) {
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"role":%q,"content":%q}`, role, words)
		}
		text("user", session+strings.Repeat(" begins with many words", length))
		for i := range n {
			text("assistant", fmt.Sprint("answer ", i, strings.Repeat(" and so on", 20)))
			text("user", fmt.Sprint("question ", i))
		}
		switch f.name {
		case "completions":
			return fmt.Sprintf(`{"model":"m","prompt":%q}`, b.String())
		case "responses":
			return `{"model":"m","input":[` + b.String() + `]}`
		}
		return `{"model":"m","max_tokens":9,"messages":[` + b.String() + `]}`
	}
	for _, f := range families {
		for _, ids := range []bool{true, false} {
			length := 60
			if f.name == "completions" && !ids {
				length = 600 // of raw text only whole strides of 4,096 bytes can be recognised
			}
			t.Run(fmt.Sprintf("%s ids %v", f.name, ids), func(t *testing.T) {
				p := startProxy(t, "", fleetOf(t, 4, nil)...)
				used := map[string]bool{}
				for s := range 8 {
					name := fmt.Sprint("session ", s)
					var header []string
					if ids {
						header = []string{"X-Session-Id", name}
					}
					first := ""
					for n := range 6 {
						got := p.post(f.path, turn(f, name, n, length), header...)
						if n == 0 {
							first = engineOf(got)
							used[first] = true
						} else if engineOf(got) != first {
							t.Errorf("%s: turn %d on %s (%s), the first on %s", name, n, engineOf(got), got.header.Get("X-Warmring-Reason"), first)
						}
					}
				}
				if len(used) < 2 {
					t.Errorf("all 8 sessions on %v", used)
				}
				source := "prefix"
				if ids {
					source = "header:x-session-id"
				}
				if v := p.metric(fmt.Sprintf(`warmring_identified_total{source=%q}`, source)); v != "48" {
					t.Errorf("identified by %s: %s", source, v)
				}
			})
		}
	}
}

// C098: a parent and its children that are sent at once, before any answer, under
// one key and with one beginning, meet on one engine.
func TestChildrenThatAreSentWithTheirParent(t *testing.T) {
	p := startProxy(t, "", fleetOf(t, 4, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	})...)
	prefix := strings.Repeat("eight thousand tokens of common ground ", 800)
	var mu sync.Mutex
	on := map[string]int{}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			got := p.post("/v1/chat/completions", chat(prefix, "yes", fmt.Sprint("child ", i)), "X-Session-Id", "family-1")
			mu.Lock()
			defer mu.Unlock()
			on[engineOf(got)]++
		})
	}
	all.Wait()
	if len(on) != 1 {
		t.Errorf("they are on %v", on)
	}
}

// C100: a fork whose system prompt names another session id late in the text
// still finds its parent's engine by what they share.
func TestAForkFollowsWhatItShares(t *testing.T) {
	for seed := range 6 {
		p := startProxy(t, "", fleetOf(t, 4, nil)...)
		system := func(id string) string {
			return fmt.Sprint("agent ", seed, " ", strings.Repeat("word ", 3000), "/tmp/agent/", id, "/pad ", strings.Repeat("tail ", 500))
		}
		body := func(id string) string {
			return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","content":"go"}]}`, system(id))
		}
		parent := p.post("/v1/chat/completions", body("ID-1"), "X-Session-Id", "p")
		fork := p.post("/v1/chat/completions", body("ID-2"), "X-Session-Id", "f", "X-Warmring-Parent", "p")
		if engineOf(parent) != engineOf(fork) {
			t.Errorf("parent on %s, fork on %s (%s, %s warm)", engineOf(parent), engineOf(fork), fork.header.Get("X-Warmring-Reason"), fork.header.Get("X-Warmring-Warm"))
		}
	}
}

// C101: a swarm under one prompt_cache_key whose prompts share nothing is spread;
// the long session under that key stays where it is.
func TestASwarmUnderOneKeyIsSpread(t *testing.T) {
	release := make(chan struct{})
	p := startProxy(t, "", fleetOf(t, 4, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "agent of the swarm") {
			<-release
		}
		_, _ = io.WriteString(w, "{}")
	})...)
	body := func(system, user string) string {
		return fmt.Sprintf(`{"model":"m","prompt_cache_key":"k1","messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, system, user)
	}
	main := func(n int) string {
		return body(strings.Repeat("the main agent ", 2000), "task")[:len(body(strings.Repeat("the main agent ", 2000), "task"))-2] + strings.Repeat(`,{"role":"assistant","content":"ok"},{"role":"user","content":"next"}`, n) + "]}"
	}
	home := engineOf(p.post("/v1/chat/completions", main(0)))
	p.post("/v1/chat/completions", main(1))
	var mu sync.Mutex
	on := map[string]int{}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			got := p.post("/v1/chat/completions", body(fmt.Sprint("agent of the swarm, kind ", i%3, strings.Repeat(" does things", 200)), fmt.Sprint("private task ", i, strings.Repeat(fmt.Sprint(" word", i), 500))))
			mu.Lock()
			defer mu.Unlock()
			on[engineOf(got)]++
		})
	}
	eventually(t, "all to run", func() bool { return p.live.count() == 30 })
	close(release)
	all.Wait()
	for e, n := range on {
		if n > 15 {
			t.Errorf("%d of 30 on %s: %v", n, e, on)
		}
	}
	if got := p.post("/v1/chat/completions", main(2)); engineOf(got) != home || got.header.Get("X-Warmring-Reason") != "bound" {
		t.Errorf("the main agent moved from %s to %s (%s)", home, engineOf(got), got.header.Get("X-Warmring-Reason"))
	}
}

// Invariant 9: tenants do not meet: the same id and prompt under another key is
// another session, which is credited with nothing of the first.
func TestTenantsDoNotMeet(t *testing.T) {
	p := startProxy(t, "", fleetOf(t, 4, nil)...)
	prompt := chat(strings.Repeat("the same words ", 2000))
	a := p.post("/v1/chat/completions", prompt, "X-Session-Id", "s", "Authorization", "Bearer one")
	b := p.post("/v1/chat/completions", prompt, "X-Session-Id", "s", "Authorization", "Bearer two")
	if a.header.Get("X-Warmring-Session") == b.header.Get("X-Warmring-Session") || !strings.HasPrefix(b.header.Get("X-Warmring-Warm"), "0/") {
		t.Errorf("%v and %v", a.header, b.header)
	}
}
