package ring

import (
	"testing"
	"time"
)

// A long prompt is computed in several runs. What is done is off the engine's account, the rest is charged, and the answer
// that finds all of it cached teaches neither a larger cache nor a faster engine.
func TestProgressIsNoSurpriseAndNoLoad(t *testing.T) {
	w := newWorld(t, Options{DefaultKVTokens: 20_000}, fleet(1, 0))
	before := w.Snapshot()[0]
	ch, d := w.start(1, begin(0, 0, 1, 144_000)) // 40,000 tokens by the first guess
	for _, held := range []int{10_000, 20_000, 15_000, 30_000} {
		w.sleep(time.Second)
		ch.Progress(w.now, held)
		ch.Restart(w.now)
	}
	if v := w.Snapshot()[0]; int(v.Waiting) != d.Prompt-30_000 {
		t.Errorf("%d fresh tokens are charged of %d, want %d", v.Waiting, d.Prompt, d.Prompt-30_000)
	}
	w.answer(ch, 40_000, 29_984)
	after := w.Snapshot()[0]
	if after.Capacity != before.Capacity {
		t.Errorf("the capacity grew from %d to %d by what the request itself had computed", before.Capacity, after.Capacity)
	}
	if v := w.Gauges().Totals; v.More != 0 || v.Less != 0 {
		t.Errorf("surprises: %+v", v)
	}
	w.settled()

	// More than that is a surprise as ever: somebody else computed it.
	ch, _ = w.start(2, begin(0, 0, 2, 144_000))
	ch.Progress(w.now, 10_000)
	w.answer(ch, 40_000, 39_984)
	if w.Gauges().Totals.More != 1 {
		t.Errorf("%+v", w.Gauges().Totals)
	}
}

// A request that leaves an engine after some of its runs leaves there what they computed, and no more.
func TestWhatWasComputedStaysOnRecord(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 1_000_000))
	c := begin(0, 0, 1, 144_000)
	ch, d := w.start(0, c)
	ch.Progress(w.now, 25_000)
	ch.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	_, again := w.start(0, c)
	if again.Engine != d.Engine || again.Warm < 20_000 || again.Warm > 26_000 {
		t.Errorf("%d of 25,000 computed tokens are on record at %s (it was %s)", again.Warm, again.Engine, d.Engine)
	}
	w2 := newWorld(t, Options{}, fleet(2, 1_000_000))
	ch, _ = w2.start(0, c)
	ch.Release(w2.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	if _, again := w2.start(0, c); again.Warm != 0 {
		t.Errorf("nothing was computed, and %d tokens are on record", again.Warm)
	}
}
