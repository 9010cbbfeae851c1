package prompt

import "testing"

// read scans and fingerprints a body in a fixed scope.
func read(body string, family Family) *Prompt {
	p := new(Prompt)
	p.Scan([]byte(body), family)
	p.Fingerprint([]byte(body), 42)
	return p
}

func TestAChatBodySaysWhatItIs(t *testing.T) {
	body := `{"model":"m1","stream":true,"stream_options":{"include_usage":true},"max_tokens":77,"prompt_cache_key":"k1",
		"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}],
		"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}`
	p := read(body, Chat)
	if p.Fallback != "" || string(p.ModelName([]byte(body))) != "m1" || !p.Stream || !p.IncludeUsage || p.MaxTokens != 77 || p.Open != 1 {
		t.Fatalf("%+v", p)
	}
	if string(p.Field([]byte(body), "prompt_cache_key")) != "k1" {
		t.Fatalf("fields %v", p.Fields)
	}
	if len(p.Chain) != 5 || p.Head != 3 || p.First != 4 || p.Whole != p.Chain[4].Fingerprint || int(p.Chain[4].Bytes) != p.Bytes {
		t.Fatalf("chain %v head %d first %d", p.Chain, p.Head, p.First)
	}
}
