package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/warmring/warmring/engines/sim"
)

// The simulated vLLM stands in for the real one in most tests. Given one script of requests, token ids and chats, more than
// the cache of 700 blocks can hold, both must count the same prompt and cached tokens at each step.
func TestSimulatedVLLMCachesLikeTheRealOne(t *testing.T) {
	if testing.Short() {
		t.Skip("starting real vLLM takes a minute")
	}
	const blocks = 700
	engine, err := StartVLLM(t.Context(), VLLM{Name: "vllm-small", Core: 1, KVTokens: blocks * vllmBlock, Context: 16384, Logs: shared.logs})
	need(t, err)
	t.Cleanup(engine.Stop)
	shared.drive(version("vllm") + " (small cache)")
	simulated, err := sim.Start(sim.ServerOptions{
		Options:      sim.Options{Mode: sim.VLLM, BlockTokens: vllmBlock, KVTokens: blocks * vllmBlock, MaxModelLen: 16384, MaxBatchedTokens: 512, MaxRunning: 16},
		Speed:        100,
		Models:       []string{engine.Model},
		TokenizeBody: func(path string, body []byte) []uint64 { return tokenize(t.Context(), engine, path, body) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer simulated.Close()

	script := sim.Script(sim.ScriptOptions{Model: engine.Model, BlockTokens: vllmBlock, KVTokens: blocks * vllmBlock, TokenIDs: 2000, Seed: 11})
	real, err := sim.Play(t.Context(), http.DefaultClient, engine.URL, script)
	if err != nil {
		t.Fatal(err)
	}
	other, err := sim.Play(t.Context(), http.DefaultClient, simulated.URL(), script)
	if err != nil {
		t.Fatal(err)
	}
	if len(real) != len(script) || len(other) != len(script) {
		t.Fatalf("%d and %d answers to %d requests", len(real), len(other), len(script))
	}
	same := 0
	for i := range script {
		if real[i] == other[i] {
			same++
			continue
		}
		t.Errorf("%s: the real engine has %d of %d tokens cached, the simulated one %d of %d",
			script[i].Name, real[i].Cached, real[i].Prompt, other[i].Cached, other[i].Prompt)
	}
	t.Logf("%d of %d requests found the same number of cached tokens", same, len(script))
}

// tokenize has the real engine make token ids of a chat; nil for anything else, which the simulated one reads itself.
func tokenize(ctx context.Context, e *Engine, path string, body []byte) []uint64 {
	if path != Chat {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return nil
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var told struct{ Tokens []uint64 }
	if err := json.NewDecoder(answer.Body).Decode(&told); err != nil {
		return nil
	}
	return told.Tokens
}
