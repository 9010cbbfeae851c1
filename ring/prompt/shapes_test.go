package prompt

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

func sameChain(a, b *Prompt) bool {
	return len(a.Chain) == len(b.Chain) && extends(a, b) && a.Head == b.Head && a.First == b.First
}

// Pairs of bodies that are one prompt to the engine.
func TestTheseBodiesAreOnePrompt(t *testing.T) {
	for _, c := range []struct {
		name   string
		family Family
		a, b   string
	}{
		{"C021: nulls in the history", Chat,
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":null}}]}],"tools":null,"stop":null,"stream":null}`,
			`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}`},
		{"C021: a byte order mark", Chat, "\xef\xbb\xbf{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", `{"messages":[{"role":"user","content":"x"}]}`},
		{"C119: the billing line as a block", Messages,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: n=A1"},{"type":"text","text":"be kind"},{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"x"}]}`,
			`{"system":[{"type":"text","text":"be kind"},{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"x"}]}`},
		{"C119: the billing line alone before one text", Messages,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: n=A1"} , {"type":"text","text":"be kind","cache_control":{"type":"ephemeral"}}],"messages":[]}`,
			`{"system":"be kind","messages":[]}`},
		{"C119: the billing line as the first line of a text", Messages,
			`{"system":"x-anthropic-billing-header: n=A1 c:\\new;\nbe kind","messages":[]}`, `{"system":"be kind","messages":[]}`},
		{"C124: moved cache_control", Messages,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]},{"role":"assistant","content":[{"cache_control":{"type":"ephemeral"},"type":"tool_use","id":"t","name":"f","input":{}}]}],"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral"}}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}],"tools":[{"name":"f","input_schema":{}}]}`},
		{"C127: texts and lists of one text, blanks", Chat,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
			`{ "messages" : [ {"role": "user", "content": [ {"text": "a", "type": "text"} ] } , { "role": "assistant" , "content": [{"type":"text","text":"b"}] } ] }`},
		{"a tool result as a text and as a list", Messages,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}]}]}]}`},
		{"item ids and states", Responses,
			`{"input":[{"type":"function_call","status":"completed","id":"fc_1","name":"f","arguments":"{}","call_id":"c"},{"id":"x","type":"function_call_output","call_id":"c","output":"r"}]}`,
			`{"input":[{"type":"function_call","name":"f","arguments":"{}","call_id":"c"},{"type":"function_call_output","call_id":"c","output":"r"}]}`},
		{"input as a text and as a message", Responses, `{"input":"hi"}`, `{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`},
		{"a prompt as a text and as a list of one", Completions, `{"prompt":"hi"}`, `{"prompt":[ "hi" ]}`},
		{"token ids as a list and as a list of one list", Completions, `{"prompt":[1,2,3]}`, `{"prompt":[[1, 2, 3]]}`},
		{"tools before and after the messages", Chat, `{"tools":[{"a":1}],"messages":[{"role":"user"}]}`, `{"messages":[{"role":"user"}],"tools":[{"a":1}]}`},
		{"members that no prompt is made of", Chat, `{"messages":[{"role":"user"}],"temperature":0.1,"seed":9007199254740995}`, `{"seed":1,"messages":[{"role":"user"}]}`},
		{"a repeated key: the last one counts", Chat, `{"messages":[{"role":"user","content":"old"},{"role":"user"}],"messages":[{"role":"user","content":"new"}]}`, `{"messages":[{"role":"user","content":"new"}]}`},
		{"no salt and a null one", Chat, `{"cache_salt":null,"messages":[{"role":"user"}]}`, `{"messages":[{"role":"user"}]}`},
	} {
		a, b := read(c.a, c.family), read(c.b, c.family)
		if a.Fallback != "" || b.Fallback != "" || !sameChain(a, b) {
			t.Errorf("%s:\n%v %q\n%v %q", c.name, a.Chain, a.Fallback, b.Chain, b.Fallback)
		}
	}
}

// Pairs of bodies that are two prompts to the engine.
func TestTheseBodiesAreTwoPrompts(t *testing.T) {
	for _, c := range []struct {
		name   string
		family Family
		a, b   string
	}{
		{"roles", Chat, `{"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"assistant","content":"x"}]}`},
		{"one message or two", Chat, `{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, `{"messages":[{"role":"user","content":"ab"}]}`},
		{"a tool or a message", Chat, `{"tools":[{"role":"user"}],"messages":[]}`, `{"messages":[{"role":"user"}]}`},
		{"one part or two", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`},
		{"C119: user text that looks like the billing line", Messages,
			`{"messages":[{"role":"user","content":"x-anthropic-billing-header: 1"}]}`, `{"messages":[{"role":"user","content":"x-anthropic-billing-header: 2"}]}`},
		{"C119: a user's block that looks like it", Messages,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"a"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"x-anthropic-billing-header: 2"},{"type":"text","text":"a"}]}]}`},
		{"C130: cache salts", Chat, `{"cache_salt":"t1","messages":[{"role":"user"}]}`, `{"cache_salt":"t2","messages":[{"role":"user"}]}`},
		{"C130: cache salts of completions", Completions, `{"cache_salt":"t1","prompt":"x"}`, `{"cache_salt":"t2","prompt":"x"}`},
		{"a salt and none", Messages, `{"cache_salt":"t1","messages":[{"role":"user"}]}`, `{"messages":[{"role":"user"}]}`},
		{"references to two items", Responses, `{"input":[{"type":"item_reference","id":"a"}]}`, `{"input":[{"id":"b","type":"item_reference"}]}`},
		{"text and ids", Completions, `{"prompt":"[1]"}`, `{"prompt":[1]}`},
		{"two prompts or one", Completions, `{"prompt":["a","b"]}`, `{"prompt":"ab"}`},
		{"two lists of ids or one", Completions, `{"prompt":[[1],[2]]}`, `{"prompt":[1,2]}`},
		{"instructions and input", Responses, `{"instructions":"a","input":"b"}`, `{"instructions":"b","input":"a"}`},
		{"ids of messages outside Responses", Chat, `{"messages":[{"role":"user","id":"a"}]}`, `{"messages":[{"role":"user","id":"b"}]}`},
	} {
		a, b := read(c.a, c.family), read(c.b, c.family)
		if a.Fallback != "" || b.Fallback != "" || a.Whole == b.Whole {
			t.Errorf("%s: %x %q, %x %q", c.name, a.Whole, a.Fallback, b.Whole, b.Fallback)
		}
	}
	body := []byte(`{"messages":[{"role":"user"}]}`)
	var p Prompt
	seen := map[uint64]bool{}
	for _, seed := range []uint64{Seed(1, []byte("m")), Seed(2, []byte("m")), Seed(1, []byte("n"))} {
		p.Scan(body, Chat)
		p.Fingerprint(body, seed)
		seen[p.Whole] = true
	}
	if len(seen) != 3 {
		t.Error("tenants or models share fingerprints")
	}
}

// C010: a cut emoji is a lone surrogate escape, which many readers refuse.
func TestALoneSurrogateIsTextLikeAnyOther(t *testing.T) {
	before := `{"messages":[{"role":"user","content":"q"},{"role":"tool","content":"cut \ud83d"}`
	a, b := read(before+`]}`, Chat), read(before+`,{"role":"assistant","content":"ok"}]}`, Chat)
	if a.Fallback != "" || !extends(a, b) {
		t.Errorf("fallback %q, %d of %d points", a.Fallback, shared(a.Chain, b.Chain), len(a.Chain))
	}
}

// C100: the session's id in the middle of the system text.
func TestASystemTextWithAPathSharesWhatStandsBeforeThePath(t *testing.T) {
	write := func(id string) string {
		return `{"messages":[{"role":"system","content":"` + strings.Repeat("word ", 3000) + `/tmp/agent/` + id + `/pad` + strings.Repeat("more ", 500) + `"},{"role":"user","content":"x"}]}`
	}
	a, b := read(write("ID-1"), Chat), read(write("ID-2"), Chat)
	if n := shared(a.Chain, b.Chain); n == 0 || a.Chain[n-1].Bytes < 12000 {
		t.Errorf("%d points shared", n)
	}
}

// C125: a shortened tool result leaves what stands before it.
func TestAShortenedResultLeavesTheChainBeforeIt(t *testing.T) {
	write := func(words int) string {
		return `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"tool","content":"` + strings.Repeat("word ", words) + `"},{"role":"assistant","content":"b"}]}`
	}
	a, b := read(write(900), Chat), read(write(300), Chat)
	if n := shared(a.Chain, b.Chain); n != 2 {
		t.Errorf("%d points shared, want 2", n)
	}
}

func TestHeadAndFirstEndWhereTheirPartsEnd(t *testing.T) {
	for _, c := range []struct {
		family      Family
		body        string
		head, first int
	}{
		{Chat, `{"messages":[{"role":"user"},{"role":"system"}]}`, 0, 1},
		{Chat, `{"messages":[{"role":"system"},{"role":"developer"},{"role":"user"},{"role":"user"}]}`, 2, 3},
		{Chat, `{"messages":[{"role":"system"},{"role":"assistant"},{"role":"user"}],"tools":[{},{}]}`, 3, 5},
		{Chat, `{"messages":[{"role":"system"}]}`, 1, 1},
		{Chat, `{"messages":[{"role":"assistant"},{"role":"tool"}]}`, 0, 2},
		{Chat, `{"functions":[{}],"messages":[{"role":"user"}]}`, 1, 2},
		{Messages, `{"system":"s","messages":[{"role":"user"},{"role":"assistant"}],"tools":[{}]}`, 2, 3},
		{Responses, `{"instructions":"s","input":[{"role":"developer"},{"role":"user"}],"tools":[{}]}`, 3, 4},
		{Responses, `{"instructions":"s","input":"x"}`, 1, 2},
		{Responses, `{"previous_response_id":"r","input":[{"type":"function_call_output","output":"x"}]}`, 0, 1},
		{Completions, `{"prompt":["a","b"]}`, 0, 1},
		{Completions, `{"prompt":"` + strings.Repeat("x", 10000) + `"}`, 0, 1},
	} {
		if p := read(c.body, c.family); p.Fallback != "" || p.Head != c.head || p.First != c.first {
			t.Errorf("%.80s: head %d first %d, want %d and %d (%q)", c.body, p.Head, p.First, c.head, c.first, p.Fallback)
		}
	}
}

func TestABodyThatIsNotUnderstoodGetsAChainOfItsBytes(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct{ name, body, why, model string }{
		{"not JSON", "--boundary\r\nhello", whyNotObject, ""},
		{"blank", "  ", whyEmpty, ""},
		{"a list", `[{"model":"m"}]`, whyNotObject, ""},
		{"cut off", `{"model":"m","messages":[{"role":"us`, whyEnd, "m"},
		{"trailing bytes", `{"model":"m","messages":[{"role":"user"}]} {`, whyTrailing, "m"},
		{"an escaped key", `{"model":"m","mess\u0061ges":[]}`, whyKey, "m"},
		{"an escaped key in a message", `{"model":"m","messages":[{"r\u006fle":"user"}]}`, whyKey, "m"},
		{"too deep", `{"model":"m","messages":[{"role":"user","content":` + deep + `}]}`, whyDepth, "m"},
		{"bad syntax", `{"model":"m","messages":[{"role":"user"},]}`, whySyntax, "m"},
		{"a bad number", `{"model":"m","seed":01}`, whySyntax, "m"},
		{"no messages", `{"model":"m"}`, whyPrompt, "m"},
		{"messages of another type", `{"model":"m","messages":"x"}`, whyPrompt, "m"},
	} {
		p := read(c.body, Chat)
		if p.Fallback != c.why || len(p.Chain) == 0 || string(p.ModelName([]byte(c.body))) != c.model {
			t.Errorf("%s: fallback %q, want %q; %d points; model %q", c.name, p.Fallback, c.why, len(p.Chain), p.ModelName([]byte(c.body)))
		}
		if (p.Open != 0) != (c.why == whyPrompt) {
			t.Errorf("%s: open %d", c.name, p.Open)
		}
	}
	if p := read(`{"prompt":[1,"a"]}`, Completions); p.Fallback != whyMixed {
		t.Errorf("mixed prompt: %q", p.Fallback)
	}
	if p := read(`{"model":"m","input":"x"}`, None); p.Fallback != whyFamily || p.Open != 1 || len(p.Chain) != 1 {
		t.Errorf("no family: %q", p.Fallback)
	}
	if p := read(``, Chat); len(p.Chain) != 0 || p.Bytes != 0 {
		t.Error("an empty body has a chain")
	}
	// A growing body that nobody understands still shares what it repeats.
	text := source(rand.New(rand.NewSource(1)), 20000)
	a, b := read(text, Chat), read(text+"more", Chat)
	if shared(a.Chain, b.Chain) != len(a.Chain)-1 || len(a.Chain) != 5 {
		t.Errorf("%d of %d points", shared(a.Chain, b.Chain), len(a.Chain))
	}
}

// Lists of token ids have a quick path where they are written plainly. Whatever stands in them, the result is
// that of reading them one by one.
func TestTokenIDsAreReadAlikeHoweverTheyAreWritten(t *testing.T) {
	r := rand.New(rand.NewSource(9))
	odd := []string{"-1", "1.5", "2e3", "01", "1 2", ",", "\n7", " 8 ", "9 ", "\"a\"", "null", "00", "0", "", "é"}
	for round := range 3000 {
		n := 2 + r.Intn(60)
		if round%100 == 0 {
			n = 3000
		}
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint(r.Intn(1 << r.Intn(20)))
		}
		valid := true
		if r.Intn(2) == 0 {
			o := r.Intn(len(odd))
			ids[r.Intn(n)] = odd[o]
			switch odd[o] {
			case "01", "1 2", ",", "00", "", "é", "\"a\"", "null":
				valid = false
			}
		}
		compact := `{"prompt":[` + strings.Join(ids, ",") + `]}`
		a := read(compact, Completions)
		if (a.Fallback == "") != valid {
			t.Fatalf("%.300q: fallback %q", compact, a.Fallback)
		}
		for _, separator := range []string{", ", " ,", "\n,\n", ",  "} {
			b := read(`{"prompt":[`+strings.Join(ids, separator)+`]}`, Completions)
			if a.Fallback != b.Fallback || (a.Fallback == "" && !sameChain(a, b)) {
				t.Fatalf("%.300q with %q: %q and %q, %d and %d points", compact, separator, a.Fallback, b.Fallback, len(a.Chain), len(b.Chain))
			}
		}
	}
}

// However long, a prompt has at most MaxPoints points; these are still a prefix of a longer prompt's, but for the last.
func TestALongPromptHasABoundedChain(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"messages":[{"role":"user","content":"q"}`)
	r := rand.New(rand.NewSource(3))
	var before *Prompt
	for i := range 60000 {
		fmt.Fprintf(&b, `,{"role":"assistant","content":"%s"}`, strings.Repeat("x", r.Intn(300)))
		if i%20000 == 7 || i == 59999 {
			p := read(b.String()+`]}`, Chat)
			checkChain(t, p)
			if before != nil && shared(before.Chain, p.Chain) < len(before.Chain)-1 {
				t.Fatalf("%d of %d points shared", shared(before.Chain, p.Chain), len(before.Chain))
			}
			before = p
		}
	}
	t.Logf("%d messages of %d bytes: %d points", 60001, before.Bytes, len(before.Chain))
	text := strings.Repeat("0123456789abcdef", 4<<20) // 64 MiB
	p := read(`{"prompt":"`+text+`"}`, Completions)
	checkChain(t, p)
	t.Logf("a text of %d bytes: %d points", p.Bytes, len(p.Chain))
}
