package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/warmring/warmring/engines/sim"
)

// step is one prompt of a script that is held against two engines: token ids, which need no tokenizer to be the same.
type step struct {
	what string
	ids  []int
}

// cacheScript tries what a prefix cache is asked for: repetition, growth, branches, odd lengths, and more than it can hold
// (22,400 tokens on the small engine).
func cacheScript() []step {
	random := rand.New(rand.NewPCG(11, 13))
	tokens := func(n int) []int {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = 10 + random.IntN(4000)
		}
		return ids
	}
	join := func(parts ...[]int) (all []int) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	first := tokens(3000)
	branch := join(first[:1000], tokens(700))
	script := []step{
		{"cold", first}, {"the same again", first},
		{"grown by 100", join(first, tokens(100))}, {"a branch at 1000", branch}, {"the branch grown", join(branch, tokens(33))},
		{"the first again", first}, {"a beginning of it", first[:1500]},
		{"cold, other scope", tokens(500)},
	}
	for _, n := range []int{1, 31, 32, 33, 63, 64, 65, 96} { // around the edges of blocks, where the last token is always computed
		ids := tokens(n)
		script = append(script, step{fmt.Sprintf("%d tokens", n), ids}, step{fmt.Sprintf("%d tokens again", n), ids})
	}
	var long [4][]int
	for i := range long {
		long[i] = tokens(6223)
	}
	for pass := range 3 {
		for i, ids := range long {
			script = append(script, step{fmt.Sprintf("long %d of 4, pass %d: more than fits", i+1, pass+1), ids})
		}
	}
	for pass := range 2 {
		for i, ids := range long[:3] {
			script = append(script, step{fmt.Sprintf("long %d of 3, pass %d: fits", i+1, pass+1), ids})
		}
	}
	return script
}

// The simulated vLLM stands in for the real one in most tests. Asked for the same tokens, its cache must answer with the
// same numbers: here, one request after another, with a cache of 700 blocks.
func TestSimulatedVLLMCachesLikeTheRealOne(t *testing.T) {
	if testing.Short() {
		t.Skip("starting real vLLM takes a minute")
	}
	engine, err := StartVLLM(t.Context(), VLLM{Name: "vllm-small", Core: 1, KVTokens: 700 * vllmBlock, Context: 16384, Logs: shared.logs})
	need(t, err)
	t.Cleanup(engine.Stop)
	shared.drive(version("vllm") + " (small cache)")
	compareCaches(t, engine, sim.ServerOptions{Options: sim.Options{
		Mode: sim.VLLM, BlockTokens: vllmBlock, KVTokens: 700 * vllmBlock, MaxModelLen: 16384, MaxBatchedTokens: 512, MaxRunning: 16,
	}}, cacheScript())
}

func compareCaches(t *testing.T, real *Engine, options sim.ServerOptions, script []step) {
	t.Helper()
	options.Speed, options.Models = 100, []string{real.Model}
	simulated, err := sim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	defer simulated.Close()
	differ := 0
	for _, s := range script {
		body := Body{"model": real.Model, "prompt": s.ids, "max_tokens": 1, "temperature": 0}
		var counts [2][2]int
		for i, base := range []string{real.URL, simulated.URL()} {
			a, err := Client{Base: base}.Ask(t.Context(), Completions, body, nil)
			if err != nil {
				t.Fatalf("%s: %v", s.what, err)
			}
			if a.Status != http.StatusOK {
				t.Fatalf("%s: status %d: %.300s", s.what, a.Status, a.Body)
			}
			counts[i] = [2]int{a.Prompt, a.Cached}
		}
		if counts[0] != counts[1] {
			differ++
			t.Errorf("%s: the real engine has %d of %d tokens cached, the simulated one %d of %d", s.what, counts[0][1], counts[0][0], counts[1][1], counts[1][0])
		}
	}
	t.Logf("%d of %d requests found the same number of cached tokens", len(script)-differ, len(script))
}
