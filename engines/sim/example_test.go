package sim_test

import (
	"fmt"

	"github.com/warmring/warmring/engines/sim"
)

// A turn of a session finds its predecessor in the cache.
func ExampleCore() {
	core := sim.NewCore(sim.Options{Mode: sim.VLLM})
	tokens := make([]uint64, 10_000)
	for turn := 1; turn <= 2; turn++ {
		prompt := sim.HashTokens(sim.Root("model", ""), core.Options().BlockTokens, tokens)
		core.Submit(sim.Request{ID: fmt.Sprint("turn ", turn), Prompt: prompt, MaxTokens: 2})
		now := int64(0)
		for core.Live() > 0 {
			length, events := core.Step(now)
			for _, e := range events {
				if e.Kind == sim.FirstToken {
					fmt.Printf("%s: %d of %d tokens cached\n", e.ID, e.Cached, prompt.Tokens)
				}
			}
			now += int64(length)
		}
		tokens = append(tokens, 1, 2, 3)
	}
	// Output:
	// turn 1: 0 of 10000 tokens cached
	// turn 2: 10000 of 10003 tokens cached
}
