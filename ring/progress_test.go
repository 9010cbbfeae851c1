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

// Of a prompt that is computed in short runs none says much about the engine's speed, and all together do. What ran beside many
// answers does not, and neither does what was done before in no time.
func TestSpeedIsLearnedFromShortRuns(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 0))
	rate := func() float64 { return w.Snapshot()[0].PrefillRate }
	first := rate()
	ch, _ := w.start(1, begin(0, 0, 1, 144_000))
	run := func(tokens int, took time.Duration) {
		w.sleep(took)
		ch.Computed(tokens, int64(took))
		ch.Restart(w.now)
	}
	run(1000, 500*time.Millisecond)
	run(1000, 500*time.Millisecond)
	if rate() != first {
		t.Errorf("2,000 tokens have taught %v tokens/s", rate())
	}
	for range 10 {
		run(1000, 500*time.Millisecond)
	}
	if rate() != 2000 {
		t.Errorf("2,000 tokens/s, and %v are believed", rate())
	}
	run(0, time.Second)
	run(1000, 0)
	run(-5, time.Second)
	for i := range 3 {
		other, _ := w.start(uint64(i+2), begin(0, 0, uint64(i+2), 1000))
		other.FirstToken(w.now)
		defer other.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
	}
	for range 10 {
		run(1000, 5*time.Second)
	}
	if rate() != 2000 {
		t.Errorf("runs beside three answers have taught %v tokens/s", rate())
	}
	ch.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	ch.Computed(100_000, 1)
	if rate() != 2000 {
		t.Errorf("after its end: %v", rate())
	}
}

// A request that has its whole prompt computed whatever is cached finds nothing of what is there, which says nothing of the
// cache; its speed is that of the whole prompt.
func TestWhoeverBypassesTheCacheSaysNothingOfIt(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 0))
	c := begin(0, 0, 1, 144_000)
	ch, _ := w.start(1, c)
	w.answer(ch, 40_000, 0)
	before := w.Gauges().Totals
	for i := range 6 {
		w.sleep(time.Minute)
		ch, d := w.start(uint64(i%3+1), c)
		if d.Warm < 30_000 {
			t.Fatalf("after %d of them %d tokens are believed to be warm", i, d.Warm)
		}
		w.sleep(5 * time.Second)
		ch.FirstToken(w.now)
		ch.Release(w.now, Outcome{PromptTokens: 40_000, CachedTokens: 0, OutputTokens: 1, Prefilled: true, Bypassed: true})
	}
	if after := w.Gauges().Totals; after.Less != before.Less || after.Corrected != before.Corrected {
		t.Errorf("surprises: %+v", after)
	}
	if r := w.Snapshot()[0].PrefillRate; r < 7900 || r > 8100 {
		t.Errorf("8,000 tokens/s, and %.0f are believed", r)
	}
	w.settled()
}
