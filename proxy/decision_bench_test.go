package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/identity"
	"github.com/warmring/warmring/ring/prompt"
)

// agentBody is a turn of an agent: tools, a system prompt and messages of code
// with escapes, size bytes in all.
func agentBody(size, messages int) string {
	var b strings.Builder
	b.WriteString(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"`)
	b.WriteString(strings.Repeat(`You work on a repository.\n`, 400))
	b.WriteString(`"}`)
	tools := `{"type":"function","function":{"name":"tool_%d","description":"%s","parameters":{"type":"object","properties":{"path":{"type":"string","description":"absolute path"},"limit":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}}}`
	var t strings.Builder
	for i := range 30 {
		if i > 0 {
			t.WriteByte(',')
		}
		fmt.Fprintf(&t, tools, i, strings.Repeat("Reads or writes a file. ", 30))
	}
	each := (size - b.Len() - t.Len()) / messages
	line := `\tif err := store.Lookup(ctx, \"node-%d\"); err != nil {\n\t\treturn fmt.Errorf(\"lookup: %%w\", err)\n\t}\n`
	for i := range messages {
		fmt.Fprintf(&b, `,{"role":%q,"content":"`, []string{"user", "assistant"}[i%2])
		for at := b.Len(); b.Len()-at < each-60; {
			fmt.Fprintf(&b, line, i)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"tools":[`)
	b.WriteString(t.String())
	b.WriteString(`]}`)
	return b.String()
}

// BenchmarkDecision is everything between a body in memory and an engine's name:
// scan, identity, fingerprints, placement and the charge's release. The second
// case must cost at most twice the first.
//
//	go test ./proxy -run '^$' -bench Decision -benchmem
func BenchmarkDecision(b *testing.B) {
	for _, tc := range []struct{ engines, sessions int }{{8, 1_000}, {4096, 1_000_000}} {
		b.Run(fmt.Sprintf("engines=%d/sessions=%d", tc.engines, tc.sessions), func(b *testing.B) {
			placer := ring.New(ring.Options{})
			engines := make([]ring.Engine, tc.engines)
			for i := range engines {
				engines[i] = ring.Engine{Name: fmt.Sprintf("10.0.%d.%d:8000", i>>8, i&255), Models: []string{"m"}, KVTokens: 1 << 20, State: ring.Ready}
			}
			placer.SetEngines(0, engines)
			rules, err := identity.Compile(identity.DefaultSources())
			if err != nil {
				b.Fatal(err)
			}
			var p prompt.Prompt
			var d ring.Decision
			short := []byte(agentBody(40_000, 4))
			place := func(body []byte, id string, now int64) {
				p.Scan(body, prompt.Chat)
				seed := prompt.Seed(7, p.ModelName(body))
				p.Fingerprint(body, seed)
				who := rules.Identify(func(name string) []byte {
					if name == "x-session-id" {
						return []byte(id)
					}
					return nil
				}, body, &p, seed)
				t := ring.Turn{Now: now, Model: p.ModelName(body), Session: who.Session, Parent: who.Parent, Prompt: &p, Seed: seed}
				c, err := placer.Place(&t, &d)
				if err != nil {
					b.Fatal(err)
				}
				c.FirstToken(now + 1)
				c.Release(now+2, ring.Outcome{PromptTokens: p.Bytes / 4, CachedTokens: -1, OutputTokens: 100, Prefilled: true})
			}
			// Known sessions: their prompts are small, so that setting up takes
			// seconds, not minutes.
			tiny := []byte(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
			for i := range tc.sessions {
				place(tiny, fmt.Sprintf("s-%d", i), int64(i)*1000)
			}
			place(short, "mine", 1)
			body := []byte(agentBody(400_000, 160))
			place(body, "mine", 2)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			now := int64(tc.sessions) * 1000
			for range b.N {
				now += 1_000_000
				place(body, "mine", now)
			}
		})
	}
}
