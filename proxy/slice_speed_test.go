package proxy

import (
	"testing"

	"github.com/warmring/warmring/engines/sim"
)

// An engine whose long prompts all go in slices is not believed to be as fast as the first guess for ever.
func TestAnEnginesSpeedIsLearnedFromSlices(t *testing.T) {
	_, p := simulated(t, sim.VLLM, "lanes.border = 1000\nlanes.target = \"20ms\"")
	rate := func() float64 { return p.placer.Snapshot()[0].PrefillRate }
	guess := rate()
	// Its own speed: 10,000 tokens/s, and 2 ms a step.
	if _, _, _, err := ask(p, chatStream("hi"), "X-Session-Id", "short"); err != nil {
		t.Fatal(err)
	}
	if _, h, _, err := ask(p, chatStream(words("long", 12_000)), "X-Session-Id", "long"); err != nil || h.Get("X-Warmring-Slices") == "" {
		t.Fatalf("%v, %s slices", err, h.Get("X-Warmring-Slices"))
	}
	p.settled()
	if rate() == guess || rate() > 12_000 {
		t.Errorf("an engine that computes 10,000 tokens/s is believed to compute %.0f, first guessed as %.0f", rate(), guess)
	}
	nothingRuns(t, p.upstreams()["e"].lanes)
}
