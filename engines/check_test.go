package engines

import (
	"context"
	"strings"
	"testing"
)

func TestTheReportTellsWhatEachEngineIsAndWhatToMend(t *testing.T) {
	v, s, own := newFake(t).vllm(t), newFake(t).sglang(t), newFake(t).plain()
	own.set("/v1/completions", 200, `{"usage":{"prompt_tokens":1}}`)
	without := newFake(t).vllm(t).set("/v1/completions", 200, `{"usage":{"prompt_tokens":1,"prompt_tokens_details":null}}`)
	reports, err := Check(context.Background(), []Spec{
		{Name: "v", URL: v.URL}, {Name: "s", URL: s.URL}, {Name: "own", URL: own.URL}, {Name: "without", URL: without.URL}, {Name: "gone", URL: "http://127.0.0.1:1"},
	}, CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, parts := range [][]string{
		{"engine v (http://127.0.0.1:", "ready", "vllm 0.32.0", "tiny (max_model_len 32768)", "524288 tokens", "cached tokens  reported", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"},
		{"ready", "sglang 0.5.23", "60000 tokens", "cached tokens  reported", "--enable-mixed-chunk"},
		{"ready", "custom", "KV cache       unknown", "cached tokens  not reported", "set kv_tokens", "cached_tokens: it is how"},
		{"cached tokens  not reported", "--enable-prompt-tokens-details"},
		{"gone", "down – cannot connect"},
	} {
		for _, part := range parts {
			if text := reports[i].String(); !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
	}
	if older("0.17.1", 0, 17, 2) != true || older("0.32.0", 0, 17, 2) || older("1.0", 0, 17, 2) || older("dev", 9, 9, 9) || older("", 9, 9, 9) {
		t.Error("versions are compared wrongly")
	}
}
