package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// conversation is a drawn prompt that tests write as a body in many ways.
type conversation struct {
	tools  []string // raw JSON
	system string   // raw text; "" = none
	turns  []turn
}

type turn struct{ role, text string }

func drawText(t *rapid.T, label string) string {
	r := rand.New(rand.NewSource(rapid.Int64().Draw(t, label)))
	n := rapid.SampledFrom([]int{0, 3, 40, 700, 4096, 9000}).Draw(t, label+" bytes")
	if n == 0 {
		return ""
	}
	return source(r, n)
}

func drawConversation(t *rapid.T) conversation {
	c := conversation{turns: []turn{{"user", drawText(t, "first")}}}
	if rapid.Bool().Draw(t, "has system") {
		c.system = "s" + drawText(t, "system")
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "tools") {
		c.tools = append(c.tools, fmt.Sprintf(`{"name":"tool%d","description":%s,"n":[1,-2.5e3,true,null,{}]}`, i, quoted(nil, drawText(t, "tool"))))
	}
	for range rapid.IntRange(0, 8).Draw(t, "turns") {
		c.turns = append(c.turns, drawTurn(t))
	}
	return c
}

func drawTurn(t *rapid.T) turn {
	return turn{rapid.SampledFrom([]string{"user", "assistant", "tool"}).Draw(t, "role"), drawText(t, "text")}
}

// style is how a client writes a conversation; the zero style is plain and compact.
type style struct {
	family     Family
	lists      bool // texts as one-part lists
	marked     int  // this turn carries a cache_control, counted from 1
	nulls      bool // null members here and there
	ids        bool // item ids and states
	billing    string
	toolsFirst bool
	indent     bool
}

func (c conversation) body(s style) []byte {
	b := []byte(`{"model":"m"`)
	tools := func() {
		if len(c.tools) > 0 {
			b = append(b, `,"tools":[`+strings.Join(c.tools, ",")+`]`...)
		}
	}
	if s.toolsFirst {
		tools()
	}
	system := func(text, partType string) []byte {
		if s.billing == "" && !s.lists {
			return quoted(nil, text)
		}
		if !s.lists {
			return quoted(nil, billing+" n="+s.billing+"\n"+text)
		}
		list := []byte(`[`)
		if s.billing != "" {
			list = fmt.Appendf(list, `{"type":"text","text":"%s n=%s"},`, billing, s.billing)
		}
		list = append(list, `{"type":"`+partType+`","text":`...)
		list = quoted(list, text)
		if s.marked > 0 {
			list = append(list, `,"cache_control":{"type":"ephemeral","ttl":null}`...)
		}
		return append(list, `}]`...)
	}
	list, partType := "messages", "text"
	switch s.family {
	case Messages:
		if c.system != "" {
			b = append(append(b, `,"system":`...), system(c.system, partType)...)
		}
	case Responses:
		list, partType = "input", "input_text"
		if c.system != "" {
			b = append(append(b, `,"instructions":`...), quoted(nil, c.system)...)
		}
	}
	b = append(b, `,"`+list+`":[`...)
	turns := c.turns
	if s.family == Chat && c.system != "" {
		turns = append([]turn{{"system", c.system}}, turns...)
	}
	for i, m := range turns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if s.nulls {
			b = append(b, `"name":null,`...)
		}
		if s.ids {
			b = fmt.Appendf(b, `"id":"id_%d%s",`, i, s.billing)
		}
		b = append(b, `"role":"`+m.role+`","content":`...)
		if s.lists {
			b = append(b, `[{`...)
			if s.marked == i+1 {
				b = append(b, `"cache_control":{"type":"ephemeral"},`...)
			}
			b = append(b, `"type":"`+partType+`",`...)
			if s.nulls {
				b = append(b, `"annotations":null,`...)
			}
			b = append(quoted(append(b, `"text":`...), m.text), `}]`...)
		} else {
			b = quoted(b, m.text)
			if s.marked == i+1 {
				b = append(b, `,"cache_control":{"type":"ephemeral"}`...)
			}
		}
		if s.nulls {
			b = append(b, `,"refusal":null`...)
		}
		if s.ids {
			b = append(b, `,"status":"completed"`...)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if !s.toolsFirst {
		tools()
	}
	b = append(b, `,"stream":true}`...)
	if s.indent {
		var out bytes.Buffer
		if err := json.Indent(&out, b, "\t", "  "); err != nil {
			panic(err)
		}
		b = out.Bytes()
	}
	return b
}

func drawStyle(t *rapid.T, family Family, turns int) style {
	s := style{
		family: family, lists: rapid.Bool().Draw(t, "lists"), nulls: rapid.Bool().Draw(t, "nulls"),
		toolsFirst: rapid.Bool().Draw(t, "tools first"), indent: rapid.Bool().Draw(t, "indent"),
		marked: rapid.IntRange(0, turns).Draw(t, "marked"), ids: family == Responses && rapid.Bool().Draw(t, "ids"),
	}
	if family == Messages {
		s.billing = rapid.SampledFrom([]string{"", "A1B2", "C3D4"}).Draw(t, "billing")
	}
	return s
}

func drawFamily(t *rapid.T) Family {
	return rapid.SampledFrom([]Family{Chat, Messages, Responses}).Draw(t, "family")
}

func mustRead(t *rapid.T, body []byte, family Family) *Prompt {
	p := read(string(body), family)
	if p.Fallback != "" {
		t.Fatalf("not understood (%s): %s", p.Fallback, body)
	}
	checkChain(t, p)
	return p
}

type fataler interface{ Fatalf(string, ...any) }

// checkChain checks what holds for every chain.
func checkChain(t fataler, p *Prompt) {
	if len(p.Chain) == 0 || len(p.Chain) > MaxPoints || p.Head > p.First || p.First > len(p.Chain) || p.First == 0 {
		t.Fatalf("%d points, head %d, first %d", len(p.Chain), p.Head, p.First)
	}
	at, kept := int32(0), 0
	for i, q := range p.Chain {
		if q.Bytes <= at {
			t.Fatalf("point %d lies at %d, the one before at %d", i, q.Bytes, at)
		}
		at = q.Bytes
		far := int(q.Bytes)-kept >= min(max(int(q.Bytes)/32, 64), 4096)
		if far && !q.Keep {
			t.Fatalf("point %d at %d is not kept, the last kept one lies at %d", i, q.Bytes, kept)
		}
		if q.Keep {
			kept = int(q.Bytes)
		}
	}
	if last := p.Chain[len(p.Chain)-1]; p.Whole != last.Fingerprint || p.Bytes != int(last.Bytes) {
		t.Fatalf("whole %x of %d bytes, last point %+v", p.Whole, p.Bytes, last)
	}
}

// The core law: a prompt that goes on from another has a chain that goes on from the other's, however either is written.
func TestAChainGoesOnFromTheChainOfThePromptBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := drawFamily(t)
		c := drawConversation(t)
		before := mustRead(t, c.body(drawStyle(t, family, len(c.turns))), family)
		longer := c
		longer.turns = append([]turn(nil), c.turns...)
		for range rapid.IntRange(1, 5).Draw(t, "further turns") {
			longer.turns = append(longer.turns, drawTurn(t))
		}
		after := mustRead(t, longer.body(drawStyle(t, family, len(longer.turns))), family)
		if len(after.Chain) <= len(before.Chain) {
			t.Fatalf("%d points, then %d", len(before.Chain), len(after.Chain))
		}
		for i, q := range before.Chain {
			if after.Chain[i] != q {
				t.Fatalf("point %d of %d: %+v, then %+v", i, len(before.Chain), q, after.Chain[i])
			}
		}
		if before.Head != after.Head || before.First != after.First {
			t.Fatalf("head %d first %d, then head %d first %d", before.Head, before.First, after.Head, after.First)
		}
	})
}

// White space, cache_control, null members, item ids, the billing line, the order of tools and messages in the JSON, and
// whether a text is a string or a list of one part: none of these changes a prompt (C021, C119, C124, and the first half of C127).
func TestWritingTheSamePromptDifferentlyChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := drawFamily(t)
		c := drawConversation(t)
		plain := mustRead(t, c.body(style{family: family}), family)
		other := mustRead(t, c.body(drawStyle(t, family, len(c.turns))), family)
		if fmt.Sprint(plain.Chain) != fmt.Sprint(other.Chain) || plain.Head != other.Head || plain.First != other.First {
			t.Fatalf("%v head %d first %d\n%v head %d first %d", plain.Chain, plain.Head, plain.First, other.Chain, other.Head, other.First)
		}
	})
}

// Prompts that differ in anything an engine sees differ in their last fingerprint, and share the chain before the change.
func TestAChangedPromptHasAnotherChainFromTheChangeOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := drawFamily(t)
		c := drawConversation(t)
		at := rapid.IntRange(0, len(c.turns)-1).Draw(t, "changed turn")
		d := c
		d.turns = append([]turn(nil), c.turns...)
		if rapid.Bool().Draw(t, "role or text") {
			d.turns[at].role += "x"
		} else {
			d.turns[at].text += "x"
		}
		pc, pd := mustRead(t, c.body(style{family: family}), family), mustRead(t, d.body(style{family: family}), family)
		if pc.Whole == pd.Whole {
			t.Fatal("equal")
		}
		d.turns = d.turns[:at]
		c.turns = c.turns[:at]
		if at == 0 {
			return
		}
		if common := mustRead(t, c.body(style{family: family}), family); shared(common.Chain, pd.Chain) != len(common.Chain) {
			t.Fatal("the chain before the change differs")
		}
	})
}

// Completions: a text or a list of token ids that grows has a growing chain, but for the last point.
func TestACompletionsPromptGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9000).Draw(t, "length")
		more := rapid.IntRange(1, 9000).Draw(t, "more")
		write := func(n int) string {
			return `{"prompt":` + string(quoted(nil, source(rand.New(rand.NewSource(1)), n))) + `}`
		}
		if rapid.Bool().Draw(t, "ids") {
			separator := rapid.SampledFrom([]string{",", ", "}).Draw(t, "separator")
			write = func(n int) string {
				ids := make([]string, n)
				for i := range ids {
					ids[i] = fmt.Sprint(i * 7919 % 128000)
				}
				return `{"prompt":[` + strings.Join(ids, separator) + `]}`
			}
		}
		a, b := read(write(n), Completions), read(write(n+more), Completions)
		checkChain(t, a)
		checkChain(t, b)
		if a.Fallback != "" || b.Fallback != "" {
			t.Fatalf("fallback %q %q", a.Fallback, b.Fallback)
		}
		if k := shared(a.Chain, b.Chain); k < len(a.Chain)-1 {
			t.Fatalf("%d of %d points", k, len(a.Chain))
		}
	})
}
