package main

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
)

// conversation is one growing agent session in the form of a chat completion request. The body of turn t is
// text[:ends[t]] and then the tail that all of a set's conversations share, as clients send it: the whole history anew.
type conversation struct {
	id   string
	text []byte
	ends []int // one offset per turn
}

// shape says how large the parts of a conversation are, in bytes.
type shape struct {
	tools, system, first int // definitions of tools; system prompt; first user message
	history, perTurn     int // what has happened before turn 0; what each turn adds
}

// shapes are the sets of conversations by the name they have in tables: the size of the body in a middle turn.
var shapes = map[string]shape{
	"2 KB":   {0, 300, 500, 0, 150},
	"220 KB": {30000, 20000, 3000, 130000, 4500},
	"450 KB": {30000, 20000, 3000, 350000, 4500},
	"grow":   {30000, 20000, 3000, 0, 18000}, // 55 KB in turn 0, 235 KB in turn 9
}

const (
	sessions = 64
	turns    = 10
)

// conversations makes a set of 64 sessions that share tools and system prompt, the same ones at each call. tail ends each body.
func conversations(name string, stream bool) (set []conversation, tail []byte) {
	sh, known := shapes[name]
	if !known {
		panic("no such set of conversations: " + name)
	}
	shared := rand.New(rand.NewSource(7))
	tail = append(tail, ']')
	if sh.tools > 0 {
		tail = append(append(append(tail, `,"tools":`...), tools(shared, sh.tools)...), `,"tool_choice":"auto"`...)
	}
	tail = append(tail, `,"temperature":0.6,"max_tokens":4096`...)
	if stream {
		tail = append(tail, `,"stream":true,"stream_options":{"include_usage":true}}`...)
	} else {
		tail = append(tail, `,"stream":false}`...)
	}
	system := source(shared, sh.system)
	for n := range sessions {
		set = append(set, converse(sh, system, name, n))
	}
	return set, tail
}

func converse(sh shape, system, name string, n int) conversation {
	r := rand.New(rand.NewSource(int64(1000 + n)))
	c := conversation{id: fmt.Sprintf("%s-%03d", strings.ReplaceAll(name, " ", ""), n)}
	b := quote([]byte(`{"model":"tiny","messages":[{"role":"system","content":`), system)
	b = quote(append(b, `},{"role":"user","content":`...), "Task "+strconv.Itoa(n)+": please fix the failing test in "+name2(r)+".\n"+source(r, sh.first))
	b = append(b, '}')
	step := func(size int) {
		b = quote(append(b, `,{"role":"assistant","content":`...), "Let me look at "+name2(r)+" and "+name2(r)+" next.")
		if sh.tools > 0 {
			call := "call_" + strconv.FormatInt(r.Int63(), 36)
			b = append(b, `,"tool_calls":[{"id":"`+call+`","type":"function","function":{"name":"`+name2(r)+`","arguments":`...)
			b = quote(b, fmt.Sprintf(`{"path": "/srv/%s/%s.go", "limit": %d}`, name2(r), name2(r), r.Intn(4000)))
			b = append(b, `}}]},{"role":"tool","tool_call_id":"`+call+`","content":`...)
		} else {
			b = append(b, `},{"role":"user","content":`...)
		}
		b = append(quote(b, source(r, size)), '}')
	}
	for start := len(b); len(b)-start < sh.history; {
		step(4300)
	}
	for range turns {
		c.ends = append(c.ends, len(b))
		step(sh.perTurn)
	}
	c.text = b[:c.ends[turns-1]]
	return c
}

var words = strings.Fields("err ctx node ring owner replica prefix cache hash session turn block token prefill decode stream chunk proxy route engine health probe queue weight budget limit window retry drain member gossip epoch store index shard lease cursor buffer writer reader handler server client config logger metric timer")

func word(r *rand.Rand) string { return words[r.Intn(len(words))] }

func name2(r *rand.Rand) string {
	w := word(r)
	return word(r) + strings.ToUpper(w[:1]) + w[1:]
}

// source is text as tools return it: numbered source lines, log lines, test output.
func source(r *rand.Rand, size int) string {
	var b strings.Builder
	for line := 1 + r.Intn(400); b.Len() < size; line++ {
		switch r.Intn(5) {
		case 0:
			fmt.Fprintf(&b, "%6d\tfunc (%s *%s) %s(ctx context.Context, %s string) error {\n", line, word(r)[:1], name2(r), name2(r), name2(r))
		case 1:
			fmt.Fprintf(&b, "%6d\t\tif err := %s.%s(ctx, \"%s-%d\"); err != nil {\n", line, name2(r), name2(r), name2(r), r.Intn(1e6))
		case 2:
			fmt.Fprintf(&b, "%6d\t\t%s := %s[%d] // %s %s %s\n", line, name2(r), name2(r), r.Intn(4096), name2(r), name2(r), name2(r))
		case 3:
			fmt.Fprintf(&b, "2026-11-%02dT%02d:%02d:%02d.%03dZ INFO %s=%d %s=\"%s\" path=/srv/%s.go:%d\n", 1+r.Intn(28), r.Intn(24), r.Intn(60), r.Intn(60), r.Intn(1000), name2(r), r.Intn(1e5), name2(r), name2(r), name2(r), r.Intn(900))
		case 4:
			fmt.Fprintf(&b, "--- PASS: Test%s (%.2fs)\n\x1b[32mok\x1b[0m  \texample.org/%s\t%.3fs\n", name2(r), r.Float64(), name2(r), r.Float64())
		}
	}
	return b.String()[:size]
}

// quote appends s, which is ASCII, as a JSON string.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
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

func tools(r *rand.Rand, size int) []byte {
	b := []byte{'['}
	for i := 0; len(b) < size; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"type":"function","function":{"name":"%s_%d","description":`, name2(r), i)
		b = quote(b, source(r, 900))
		b = append(b, `,"parameters":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}}}`...)
	}
	return append(b, ']')
}
