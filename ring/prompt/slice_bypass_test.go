package prompt

import "testing"

// A request that has its whole prompt computed whatever is cached gains nothing from slices, and loses all when it is taken
// back. The members are those of vLLM 0.32, SGLang 0.5.23 and llama.cpp.
func TestABodyThatBypassesTheCacheIsKnownAndNotSliced(t *testing.T) {
	turns := map[Family]string{
		Chat: `"messages":[{"role":"user","content":"` + words(100) + `"}]`, Completions: `"prompt":"` + words(100) + `"`,
		Messages: `"messages":[{"role":"user","content":"` + words(100) + `"}]`, Responses: `"input":"` + words(100) + `"`,
	}
	for _, c := range []struct {
		family  Family
		members string
		want    bool
	}{
		{Chat, `"prompt_logprobs":1`, true},
		{Chat, `"prompt_logprobs":0`, true},
		{Chat, `"prompt_logprobs":null`, false},
		{Chat, `"prompt_logprobs":1,"prompt_logprobs":null`, false},
		{Chat, `"prompt_logprobs":null,"prompt_logprobs":-1`, true},
		{Completions, `"prompt_logprobs":5`, true},
		{Completions, `"prompt_logprob_token_ids":[1,2]`, true},
		{Completions, `"prompt_logprob_token_ids":null`, false},
		{Completions, `"echo":true,"logprobs":1`, true},
		{Completions, `"logprobs":0,"echo":true`, true},
		{Completions, `"logprobs":null,"echo":true`, false},
		{Completions, `"echo":true`, false},
		{Completions, `"echo":"true","logprobs":1`, true},
		{Completions, `"echo":false,"logprobs":1`, false},
		{Completions, `"echo":0,"logprobs":1`, false},
		{Completions, `"echo":null,"logprobs":1`, false},
		{Completions, `"logprobs":5`, false},
		{Chat, `"echo":true`, true}, // top_logprobs is 0 by default, and an echo takes it for the prompt's
		{Chat, `"echo":true,"top_logprobs":3,"logprobs":true`, true},
		{Chat, `"top_logprobs":null,"echo":true`, false},
		{Chat, `"logprobs":true,"top_logprobs":20`, false},
		{Responses, `"top_logprobs":20,"include":["message.output_text.logprobs"]`, false},
		{Responses, `"prompt_logprobs":1`, true},
		{Messages, `"echo":true,"logprobs":1`, false}, // knows neither
		{Messages, `"cache_prompt":false`, true},
		{Chat, `"cache_prompt":false`, true},
		{Chat, `"cache_prompt":true`, false},
		{Chat, `"cache_prompt":null`, false},
		{Chat, `"logprob_start_len":0`, true},
		{Chat, `"logprob_start_len":-1`, false},
		{Chat, `"skip_reading_prefix_cache":true`, true},
		{Chat, `"skip_reading_prefix_cache":false`, false},
		{Chat, `"metadata":{"prompt_logprobs":1}`, false}, // a member inside says nothing
	} {
		for _, body := range []string{`{` + turns[c.family] + `,` + c.members + `}`, `{` + c.members + `,` + turns[c.family] + `}`} {
			var p Prompt
			p.Scan([]byte(body), c.family)
			if p.Fallback != "" || p.BypassesCache != c.want {
				t.Errorf("%v %s: bypasses the cache %v, want %v; %q", c.family, c.members, p.BypassesCache, c.want, p.Fallback)
			}
			if _, ok := AppendSlice(nil, []byte(body), c.family, 0.5); ok == c.want {
				t.Errorf("%v %s: sliced %v", c.family, c.members, ok)
			}
		}
	}
	var p Prompt
	p.Scan([]byte(`{"prompt_logprobs":1}`), Chat)
	if p.Scan([]byte(`{"model":"m"}`), Chat); p.BypassesCache {
		t.Error("the next body has it from the one before")
	}
}

// What a Memory knows of a body is what is before its turns and behind them.
func TestARecalledBodyBypassesTheCacheAsEver(t *testing.T) {
	for _, c := range []struct {
		first, second string // members before and behind the turns
		want          bool
	}{{`"prompt_logprobs":1,`, `,"n":1`, true}, {``, `,"prompt_logprobs":1`, true}, {``, `,"n":1`, false}} {
		m := smallMemory(1000)
		turn := `{"role":"user","content":"` + words(400) + `"}`
		body := `{` + c.first + `"messages":[` + turn
		for range 4 {
			body += `,{"role":"assistant","content":"ok"},` + turn
			var p Prompt
			p.Recall(m, []byte(body+`]`+c.second+`}`), Chat)
			p.Fingerprint([]byte(body+`]`+c.second+`}`), 1)
			if p.BypassesCache != c.want {
				t.Errorf("%q, %q: %v", c.first, c.second, p.BypassesCache)
			}
			// Another tail behind the same turns.
			p.Recall(m, []byte(body+`,{"role":"assistant","content":"ok"}],"echo":true}`), Chat)
			if !p.BypassesCache {
				t.Errorf("%q, %q: an echo behind known turns is not seen", c.first, c.second)
			}
		}
		if m.Stats().Hits < 7 {
			t.Errorf("only %d recalled", m.Stats().Hits)
		}
	}
}
