package prompt

import (
	"fmt"
	"math/rand"
	"strings"
)

// The bodies that benchmarks and laws run on: agent sessions over code, with escapes and JSON inside JSON.

var nouns = strings.Fields("err ctx node ring owner replica prefix cache hash session turn block token prefill decode stream chunk proxy route engine health probe queue weight budget limit window retry drain member gossip epoch store index shard lease cursor buffer")

func noun(r *rand.Rand) string { return nouns[r.Intn(len(nouns))] }

// source returns n bytes of something that looks like a file or a log.
func source(r *rand.Rand, n int) string {
	var b strings.Builder
	for line := 1 + r.Intn(400); b.Len() < n; line++ {
		switch r.Intn(5) {
		case 0:
			fmt.Fprintf(&b, "%6d\tfunc (x *%s) %s%s(ctx context.Context, %s string) error {\n", line, noun(r), noun(r), noun(r), noun(r))
		case 1:
			fmt.Fprintf(&b, "%6d\t\tif err := %s.%s(ctx, \"%s-%d\"); err != nil {\n\t\t\treturn fmt.Errorf(\"%s: %%w\", err)\n\t\t}\n", line, noun(r), noun(r), noun(r), r.Intn(1e6), noun(r))
		case 2:
			fmt.Fprintf(&b, "%6d\t\t%s := %s[%d] // %s %s é %s\n", line, noun(r), noun(r), r.Intn(4096), noun(r), noun(r), noun(r))
		case 3:
			fmt.Fprintf(&b, "2026-11-%02dT10:%02d:%02dZ INFO %s=%d %s=\"%s\" path=/srv/%s/%s.go\n", 1+r.Intn(28), r.Intn(60), r.Intn(60), noun(r), r.Intn(1e5), noun(r), noun(r), noun(r), noun(r))
		case 4:
			fmt.Fprintf(&b, "--- PASS: Test%s (%.2fs)\n\x1b[32mok\x1b[0m \t%s/%s\n", noun(r), r.Float64(), noun(r), noun(r))
		}
	}
	return b.String()[:n]
}

// quoted appends s as the JSON string that a JavaScript client writes.
func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < 0x20:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// agentBody returns a chat body of about size bytes with that many messages and tools.
func agentBody(size, messages, tools int) []byte {
	r := rand.New(rand.NewSource(int64(size)))
	b := []byte(`{"model":"tiny","messages":[{"role":"system","content":`)
	b = quoted(b, source(r, min(20000, size/8)))
	b = append(b, `},{"role":"user","content":`...)
	b = quoted(b, "Please fix the failing test.\n"+source(r, min(3000, size/10)))
	b = append(b, '}')
	toolBytes := tools * 1000
	each := max(1, (size-len(b)-toolBytes)/max(1, messages-2))
	for i := 2; i < messages; i += 2 {
		id := fmt.Sprintf("call_%x", r.Int63())
		b = append(b, `,{"role":"assistant","content":"Let me look at this next.","tool_calls":[{"id":"`+id+`","type":"function","function":{"name":"read","arguments":`...)
		b = quoted(b, fmt.Sprintf(`{"path": "/srv/%s/%s.go", "limit": %d}`, noun(r), noun(r), r.Intn(4000)))
		b = append(b, `}}]},{"role":"tool","tool_call_id":"`+id+`","content":`...)
		b = quoted(b, source(r, max(1, (2*each-300)*10/11)))
		b = append(b, '}')
	}
	b = append(b, `],"tools":[`...)
	for i := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"type":"function","function":{"name":"%s_%d","description":`, noun(r), i)
		b = quoted(b, source(r, 600))
		b = append(b, `,"parameters":{"type":"object","properties":{"path":{"type":"string","description":"absolute path"},"limit":{"type":"integer","minimum":1},"flags":{"type":"array","items":{"type":"string","enum":["a","b","c"]}}},"required":["path"],"additionalProperties":false}}}`...)
	}
	return append(b, `],"tool_choice":"auto","temperature":0.6,"max_tokens":4096,"stream":true,"stream_options":{"include_usage":true}}`...)
}
