package prompt

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/warmring/warmring/ring/prompt/captured"
)

// reference is what the standard library makes of a body.
type reference struct {
	members map[string]json.RawMessage
	ok      bool
}

// refer reads a body with encoding/json. What Scan lets pass inside strings is put right first, in place, so that offsets
// stay: control characters, and backslashes that begin no valid escape.
func refer(body []byte) reference {
	b := bytes.Clone(body)
	inside := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			inside = !inside
		case inside && c == '\\':
			if i+1 == len(b) {
				continue
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i++
			case 'u':
				if i+6 > len(b) || !hex(b[i+2:i+6]) {
					b[i] = 'x'
				}
			default:
				b[i] = 'x'
				if b[i+1] < 0x20 {
					b[i+1] = 'x'
				}
				i++
			}
		case inside && c < 0x20:
			b[i] = 'x'
		}
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	var r reference
	r.ok = json.Unmarshal(b, &r.members) == nil && r.members != nil
	return r
}

func hex(b []byte) bool {
	for _, c := range b {
		if !(c-'0' < 10 || c|0x20-'a' < 6) {
			return false
		}
	}
	return true
}

// FuzzScan holds the scanner against encoding/json: either both take a body and find the same model, flags and parts, or
// the scanner names a reason. It never panics, says the same twice, and never leaves a body without a chain.
func FuzzScan(f *testing.F) {
	for _, name := range captured.Names() {
		requests, err := captured.Load(name)
		if err != nil {
			f.Fatal(err)
		}
		if body := requests[0].Body; len(body) < 4000 {
			f.Add([]byte(body), byte(familyOf(requests[0].Target)))
		}
	}
	for _, s := range []string{
		``, ` `, `{}`, `null`, `[]`, `{"a":1}x`, "\xef\xbb\xbf{\"messages\":[{}]}", `{"messages":[{"role":"user","content":"\ud83d"}]}`,
		`{"messages":[1],"messages":[{"role":"user","content":null,"cache_control":{"a":null}}]}`,
		`{"messages":[{"cache_control":1 , "a":2 , "b":null , "content":[{"cache_control":{},"text":"x","type":"text"}]}],"tools":[{}]}`,
		`{"prompt":[1, 2,3],"max_tokens":7}`, `{"prompt":["a","b"]}`, `{"prompt":[[1],[2,-3e4]]}`, `{"prompt":[1,"a"]}`, `{"prompt":"a\\\"b"}`,
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"b"}],"messages":[],"metadata":{"user_id":"u"}}`,
		`{"system":"x-anthropic-billing-header: a\nb","messages":[{"role":"user"}]}`,
		`{"input":"hi","instructions":"s","tools":null,"conversation":{"id":"c"},"conversation":"d"}`,
		`{"input":[{"type":"item_reference","id":"x"},{"id":"a","role":"developer"}],"stream_options":{"include_usage":true}}`,
		`{"mod\u0065l":"x"}`, `{"model":"a\/b","model":null,"stream":true,"stream":null}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":tru}`, `{"a" 1}`, `{"a":1,}`,
	} {
		for family := range Responses + 1 {
			f.Add([]byte(s), byte(family))
		}
	}
	var p, again Prompt
	f.Fuzz(func(t *testing.T, body []byte, family byte) {
		fam := Family(family % byte(Responses+1))
		p.Scan(body, fam)
		p.Fingerprint(body, 42)
		again.Scan(body, fam)
		again.Fingerprint(body, 42)
		if len(p.Chain) != len(again.Chain) || p.Whole != again.Whole || p.Fallback != again.Fallback || p.First != again.First {
			t.Fatal("two readings differ")
		}
		if len(body) == 0 {
			return
		}
		checkChain(t, &p)
		r := refer(body)
		if p.Open == 0 {
			switch p.Fallback {
			case whyDepth, whyKey, whyCuts, whyMixed:
			default:
				if r.ok {
					t.Fatalf("refused as %q", p.Fallback)
				}
			}
			return
		}
		if !r.ok {
			t.Fatal("taken, but it is not JSON")
		}
		compare(t, body, &p, r)
	})
}

// compare checks what Scan found against the members.
func compare(t *testing.T, body []byte, p *Prompt, r reference) {
	var model string
	if name := r.members["model"]; len(name) > 0 && json.Unmarshal(name, &model) == nil && model != "" {
		if got := p.ModelName(body); string(got) != model && json.Valid(body) && !bytes.ContainsRune([]byte(model), '\ufffd') {
			t.Fatalf("model %q, want %q", got, model)
		}
	} else if p.Model != (Span{}) {
		t.Fatalf("model %q", p.Model.Of(body))
	}
	if p.Stream != (string(r.members["stream"]) == "true") {
		t.Fatal("stream")
	}
	if options := r.members["stream_options"]; len(options) > 0 && options[0] == '{' {
		if len(options) != p.StreamOptions.End-p.StreamOptions.Start || body[p.StreamOptions.Start] != '{' {
			t.Fatalf("stream options %v", p.StreamOptions)
		}
	} else if p.StreamOptions != (Span{}) {
		t.Fatal("stream options where there are none")
	}
	if p.EmptyObject != (len(r.members) == 0) {
		t.Fatal("empty object")
	}
	lists := map[string][]part{}
	switch p.Family {
	case Chat:
		lists["messages"], lists["tools"], lists["functions"] = p.turns, p.tools, p.functions
	case Messages:
		lists["messages"], lists["tools"] = p.turns, p.tools
	case Responses:
		if v := r.members["input"]; len(v) > 0 && v[0] == '[' {
			lists["input"] = p.turns
		}
		lists["tools"] = p.tools
	case Completions:
		if v := r.members["prompt"]; len(v) > 1 && v[0] == '[' && len(p.turns) > 0 && !p.turns[0].ids {
			lists["prompt"] = p.turns
		}
	}
	for name, parts := range lists {
		var want []json.RawMessage
		_ = json.Unmarshal(r.members[name], &want) // what is no list has no parts
		if len(parts) != len(want) {
			t.Fatalf("%s: %d parts, want %d", name, len(parts), len(want))
		}
		for i, pt := range parts {
			if int(pt.end-pt.start) != len(want[i]) || body[pt.start] != want[i][0] || body[pt.end-1] != want[i][len(want[i])-1] {
				t.Fatalf("%s part %d is %q, want %q", name, i, body[pt.start:pt.end], want[i])
			}
			checkCanonical(t, body, p, pt)
		}
	}
}

// checkCanonical checks that what remains of a part is still JSON, without blanks.
func checkCanonical(t *testing.T, body []byte, p *Prompt, pt part) {
	var out []byte
	at := pt.start
	for _, c := range p.cuts[pt.cuts:pt.cutEnd] {
		if c.start < at || c.end < c.start || c.end > pt.end {
			t.Fatalf("cut %v in part %d to %d", c, pt.start, pt.end)
		}
		out = append(out, body[at:c.start]...)
		at = c.end
	}
	out = append(out, body[at:pt.end]...)
	if json.Valid(body[pt.start:pt.end]) && !json.Valid(out) {
		t.Fatalf("%s was cut to %s", body[pt.start:pt.end], out)
	}
}
