package prompt

import (
	"bytes"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// said is everything that a Prompt tells about a body.
type said struct {
	Family               Family
	Fallback             string
	Model, StreamOptions Span
	Stream, IncludeUsage bool
	MaxTokens, Open      int
	EmptyObject          bool
	Fields               []Field
	Chain                []Point
	Head, First, Bytes   int
	Whole                uint64
	tools, functions     []part
	system, turns        []part
	cuts                 []cut
	salt                 Span
	BypassesCache        bool
}

func says(p *Prompt) said {
	return said{
		p.Family, p.Fallback, p.Model, p.StreamOptions, p.Stream, p.IncludeUsage, p.MaxTokens, p.Open, p.EmptyObject,
		append([]Field(nil), p.Fields...), append([]Point(nil), p.Chain...), p.Head, p.First, p.Bytes, p.Whole,
		append([]part(nil), p.tools...), append([]part(nil), p.functions...), append([]part(nil), p.system...), append([]part(nil), p.turns...),
		append([]cut(nil), p.cuts...), p.salt, p.BypassesCache,
	}
}

// agree fails unless p, which reads body with memory m, says what a fresh Prompt without one says.
func agree(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *Prompt, m *Memory, body []byte, family Family, seed uint64) {
	t.Helper()
	var plain Prompt
	plain.Scan(body, family)
	plain.Fingerprint(body, seed)
	p.Recall(m, body, family)
	p.Fingerprint(body, seed)
	if want, got := says(&plain), says(p); !reflect.DeepEqual(want, got) {
		for i := range reflect.TypeOf(want).NumField() {
			w, g := fmt.Sprintf("%+v", reflect.ValueOf(want).Field(i)), fmt.Sprintf("%+v", reflect.ValueOf(got).Field(i))
			if w != g {
				t.Fatalf("%s: %.300s with a memory, %.300s without\nbody %.2000q", reflect.TypeOf(want).Field(i).Name, g, w, body)
			}
		}
	}
}

// smallMemory remembers short bodies.
func smallMemory(block int) *Memory {
	m := NewMemory()
	m.block = block
	return m
}

// Whatever a session does from one turn to the next, a memory changes nothing but the time it takes.
func TestMemoryChangesNothing(t *testing.T) {
	hits := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		m := smallMemory(rapid.SampledFrom([]int{16, 100, 1000}).Draw(t, "block"))
		var p Prompt
		family := rapid.SampledFrom([]Family{Chat, Messages, Responses}).Draw(t, "family")
		c := drawConversation(t)
		s := drawStyle(t, family, len(c.turns))
		for range rapid.IntRange(1, 6).Draw(t, "bodies") {
			body := c.body(s)
			seed := rapid.SampledFrom([]uint64{1, 1, 1, 2}).Draw(t, "seed")
			switch rapid.IntRange(0, 9).Draw(t, "what happens to the body") {
			case 0: // it is cut off
				body = body[:rapid.IntRange(0, len(body)).Draw(t, "cut at")]
			case 1: // a byte of it is another one
				if len(body) > 0 {
					body = bytes.Clone(body)
					body[rapid.IntRange(0, len(body)-1).Draw(t, "where")] = rapid.SampledFrom([]byte(`"\{}[],: 1n`)).Draw(t, "byte")
				}
			case 2: // something stands behind the messages
				more := rapid.SampledFrom([]string{
					`,"tools":[]}`, `,"messages":[]}`, `,"input":[{"role":"user","content":"x"}]}`, `,"cache_salt":"s","max_tokens":7}`,
					`,"system":[{"type":"text","text":"late","cache_control":{"type":"e"}}]}`, `,"model":"other","session_id":"q"}`,
					`,"prompt_logprobs":1}`, `,"functions":[{"name":"f","x":null}]}`, `,"messages":[{"role":"user","content":"again"}],"tools":[{"a":null}]}`, `,}`, `}}`,
					`,"instructions":"late","metadata":{"user_id":"u"},"stream_options":{"include_usage":true}}`,
				}).Draw(t, "more")
				body = append(body[:len(body)-1:len(body)-1], more...)
			}
			agree(t, &p, m, body, family, seed)
			switch rapid.IntRange(0, 5).Draw(t, "what the session does") {
			case 0: // it says the same again
			case 1: // it forgets its last message
				if n := len(c.turns); n > 1 {
					c.turns = c.turns[: n-1 : n-1]
				}
			case 2: // it has another tool
				c.tools = append(c.tools[:len(c.tools):len(c.tools)], `{"name":"more","cache_control":null}`)
			default:
				for range rapid.IntRange(1, 3).Draw(t, "messages") {
					c.turns = append(c.turns[:len(c.turns):len(c.turns)], drawTurn(t))
				}
			}
			if s.marked > 0 {
				s.marked = len(c.turns)
			}
		}
		hits += m.Stats().Hits
	})
	if hits == 0 {
		t.Error("no body was recalled: the law was not tested")
	}
}

// Each turn of a session but the first is recalled, however many sessions share their beginning.
func TestEachTurnIsRecalled(t *testing.T) {
	for _, family := range []Family{Chat, Messages, Responses} {
		t.Run(family.String(), func(t *testing.T) {
			r := rand.New(rand.NewSource(1))
			m := NewMemory()
			var p Prompt
			system := source(r, 50_000)
			sessions := make([]conversation, 8)
			for i := range sessions {
				sessions[i] = conversation{system: system, tools: []string{`{"name":"a"}`}, turns: []turn{{"user", fmt.Sprint("session ", i, source(r, 3000))}}}
			}
			const turns = 10
			for range turns {
				for i := range sessions {
					c := &sessions[i]
					agree(t, &p, m, c.body(style{family: family}), family, 1)
					c.turns = append(c.turns, turn{"assistant", "I read it."}, turn{"user", source(r, 4000)})
				}
			}
			if s := m.Stats(); s.Hits < uint64((turns-1)*len(sessions)) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A cache_control that moves on with each turn changes the message it leaves: what stands before it is recalled.
func TestMovingCacheMarksAreRecalled(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	m := NewMemory()
	var p Prompt
	c := conversation{system: source(r, 50_000), turns: []turn{{"user", source(r, 3000)}}}
	for range 10 {
		agree(t, &p, m, c.body(style{family: Messages, lists: true, marked: len(c.turns)}), Messages, 1)
		c.turns = append(c.turns, turn{"assistant", "I read it."}, turn{"user", source(r, 4000)})
	}
	if s := m.Stats(); s.Hits < 8 {
		t.Errorf("%+v", s)
	}
}

// Nothing is taken from another family or tenant: the scan is the same for tenants, the chain is not.
func TestMemoryKeepsScopesApart(t *testing.T) {
	m := NewMemory()
	body := agentBody(100<<10, 40, 10)
	var p Prompt
	for range 2 {
		agree(t, &p, m, body, Chat, 1)
		agree(t, &p, m, body, Messages, 1)
		agree(t, &p, m, body, Chat, 2)
		agree(t, &p, m, body, None, 2)
	}
	// A second Fingerprint after one Recall begins anew.
	agree(t, &p, m, body, Chat, 1)
	first := says(&p)
	p.Fingerprint(body, 3)
	p.Fingerprint(body, 1)
	if !reflect.DeepEqual(first, says(&p)) {
		t.Error("another chain")
	}
}

// More sessions than a memory holds: the oldest make room, and what is too large is not kept.
func TestMemoryIsBounded(t *testing.T) {
	m := smallMemory(64)
	var p Prompt
	for i := range 3000 {
		body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":"%d %s"},{"role":"assistant","content":"x"}]}`, i, strings.Repeat("y", 200))
		agree(t, &p, m, body, Chat, 1)
	}
	held := 0
	for i := range m.sets {
		for w := range m.sets[i].ways {
			if m.sets[i].ways[w].used > 0 {
				held++
			}
		}
	}
	if s := m.Stats(); held > memorySets*memoryWays || uint64(held)+s.Evicted != 3000 {
		t.Errorf("%d held, %+v", held, s)
	}
	for _, n := range []int{1500, 5000} {
		large := []byte(`{"messages":[{"role":"user","content":"x"}` + strings.Repeat(`,{"role":"user"}`, n) + `]}`)
		agree(t, &p, m, large, Chat, 1)
	}
	if s := m.Stats(); s.Shed != 2 {
		t.Errorf("%+v", s)
	}
}

func TestMemoryIsSafeForConcurrentUse(t *testing.T) {
	m := NewMemory()
	var all sync.WaitGroup
	for g := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			r := rand.New(rand.NewSource(int64(g % 2)))
			var p Prompt
			c := conversation{system: source(r, 40_000), turns: []turn{{"user", "go"}}}
			for range 20 {
				agree(t, &p, m, c.body(style{family: Chat}), Chat, 1)
				c.turns = append(c.turns, turn{"user", source(r, 1000)})
			}
		}()
	}
	all.Wait()
}

func TestRecallDoesNotAllocate(t *testing.T) {
	m := NewMemory()
	body := agentBody(220<<10, 70, 30)
	longer := append(bytes.Clone(body[:bytes.Index(body, []byte(`],"tools"`))]), `,{"role":"user","content":"more"}`...)
	longer = append(longer, body[bytes.Index(body, []byte(`],"tools"`)):]...)
	var p Prompt
	read := func(b []byte) {
		p.Recall(m, b, Chat)
		p.Fingerprint(b, 1)
	}
	for range 20 {
		read(body)
		read(longer)
	}
	if n := testing.AllocsPerRun(100, func() { read(body); read(longer) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMemory reads a body after another one that begins like it.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"aaaaaaaaaaaaaaaaaaaa"}],"tools":[{"n":null}]}`), []byte(`,{"role":"assistant","content":"b"}],"tools":[{"n":null}]}`), uint8(Chat), uint16(61))
	f.Add([]byte(`{"input":[{"role":"user","content":"aaaaaaaaaaaaaaaa","id":"1"}],"instructions":"x"}`), []byte(`,{"type":"item_reference","id":"b"}],"instructions":"x"}`), uint8(Responses), uint16(64))
	f.Add([]byte(`{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"aaaaaaaaaaaa","cache_control":{}}]}]}`), []byte(`]}`), uint8(Messages), uint16(70))
	f.Fuzz(func(t *testing.T, body, end []byte, family uint8, at uint16) {
		m := smallMemory(8)
		var p Prompt
		other := append(bytes.Clone(body[:min(int(at), len(body))]), end...)
		for range 2 {
			agree(t, &p, m, body, Family(family%5), 1)
			agree(t, &p, m, other, Family(family%5), 1)
		}
	})
}

func BenchmarkRecall(b *testing.B) {
	for _, c := range []struct{ size, messages, tools int }{{220 << 10, 70, 30}, {450 << 10, 160, 30}} {
		b.Run(fmt.Sprintf("%dKB", c.size>>10), func(b *testing.B) {
			body := agentBody(c.size, c.messages, c.tools)
			at := bytes.LastIndex(body[:bytes.Index(body, []byte(`],"tools"`))], []byte(`,{"role":"assistant"`))
			shorter := append(bytes.Clone(body[:at]), body[bytes.Index(body, []byte(`],"tools"`)):]...)
			m := NewMemory()
			var p Prompt
			b.SetBytes(int64(len(body)+len(shorter)) / 2)
			b.ReportAllocs()
			turn := 0
			for b.Loop() { // a session that comes and goes between two turns
				now := shorter
				if turn++; turn&1 == 0 {
					now = body
				}
				p.Recall(m, now, Chat)
				p.Fingerprint(now, 1)
			}
			s := m.Stats()
			b.ReportMetric(float64(s.Hits)/float64(s.Hits+s.Misses), "hits/op")
		})
	}
}
