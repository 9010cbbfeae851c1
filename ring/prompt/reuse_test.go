package prompt

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/warmring/warmring/ring/prompt/captured"
)

func TestAReusedPromptSaysWhatAFreshOneSays(t *testing.T) {
	var reused Prompt
	for _, name := range captured.Names() {
		for _, q := range load(t, name) {
			for _, body := range []string{q.Body, q.Body[:len(q.Body)/2]} {
				reused.Scan([]byte(body), familyOf(q.Target))
				reused.Fingerprint([]byte(body), 42)
				fresh := read(body, familyOf(q.Target))
				a, b := reused, *fresh
				for _, p := range []*Prompt{&a, &b} {
					p.writer = writer{}
				}
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Fatalf("%s: reused %v\nfresh %v", name, a, b)
				}
			}
		}
	}
}

func TestAReusedPromptDoesNotAllocate(t *testing.T) {
	body := agentBody(100<<10, 40, 10)
	spaced := conversation{system: "s", tools: []string{`{"a": null}`}, turns: []turn{{"user", "x"}}}.body(style{family: Messages, lists: true, nulls: true, marked: 1, billing: "A", indent: true})
	ids := []byte(`{"prompt":[1, 2, 3],"session_id":"s","metadata":{"user_id":"u"},"cache_salt":"x"}`)
	broken := []byte(`{"messages":[{"role":"user"},]}`)
	var p Prompt
	all := func() {
		for _, c := range []struct {
			body   []byte
			family Family
		}{{body, Chat}, {spaced, Messages}, {ids, Completions}, {broken, Responses}} {
			p.Scan(c.body, c.family)
			p.Fingerprint(c.body, Seed(1, p.ModelName(c.body)))
		}
	}
	all()
	if n := testing.AllocsPerRun(20, all); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The quick search for a string's end finds what a plain one finds, wherever the string lies.
func TestStringsEndWhereTheyEnd(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for range 20000 {
		b := make([]byte, r.Intn(150))
		for i := range b {
			b[i] = `aaaaaaaa\\\""`[r.Intn(13)]
		}
		start := r.Intn(3)
		b = append(make([]byte, start), append([]byte{'"'}, b...)...)
		want := -1
		for i := start + 1; i < len(b); i++ {
			if b[i] == '\\' {
				i++
			} else if b[i] == '"' {
				want = i + 1
				break
			}
		}
		s := scanner{body: b}
		if got := s.str(start); got != want {
			t.Fatalf("%q ends at %d, want %d", b, got, want)
		}
	}
}
