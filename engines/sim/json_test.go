package sim

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzJSON holds the span walker against encoding/json: it accepts what that accepts, and unquotes and
// compacts alike.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e3,-0,"x\"y\\",null,true,false,{}],"b":{"c":"é😀\n"}} `, `"\\"`, `[]`, `{"a":}`, `[1,]`, `01`, `"\x"`, "\"\n\"", `nul`, `{"":""}`, `-`, `"\ud800x"`, `1E1000`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := checkJSON(b)
		if !json.Valid(b) {
			return // this one is laxer about numbers
		}
		if err != nil {
			if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) <= maxJSONDepth {
				t.Fatalf("%v in %q", err, b)
			}
			return
		}
		b = b[skipSpace(b, 0):]
		if end := endOf(b, 0); len(bytes.TrimSpace(b[end:])) != 0 {
			t.Fatalf("%q ends at %d", b, end)
		}
		var compact bytes.Buffer
		json.Compact(&compact, b)
		if got := appendCompact(nil, b); !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("compact %q, want %q", got, compact.Bytes())
		}
		var s string
		if isString(b) && json.Unmarshal(b, &s) == nil && bytes.Contains([]byte(s), []byte("�")) == false {
			if got := unquote(bytes.TrimSpace(b)); got != s {
				t.Fatalf("unquote %q, want %q", got, s)
			}
		}
		fields := 0
		eachField(b, func(string, []byte) { fields++ })
		eachItem(b, func([]byte) { fields++ })
		parseCall(chat, b, nil, true, nil)
		parseCall(completions, b, nil, true, nil)
		parseCall(messages, b, nil, true, nil)
		parseCall(responses, b, nil, true, nil)
	})
}
