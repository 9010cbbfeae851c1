package ring

import (
	"math"
	"testing"
	"time"
)

// answer finishes a turn with what the engine said about it.
func (w *world) answer(ch *Charge, prompt, cached int) {
	w.sleep(time.Second)
	ch.FirstToken(w.now)
	w.sleep(time.Second)
	ch.Release(w.now, Outcome{PromptTokens: prompt, CachedTokens: cached, OutputTokens: 50, Prefilled: true})
}

func TestTokensPerByteAreLearnedPerModel(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 0))
	turn := func(model string, bytes, tokens int) Decision {
		ch, d := w.place(&Turn{Model: []byte(model), Prompt: begin(0, 0, uint64(w.now), bytes).prompt()})
		w.answer(ch, tokens, -1)
		return d
	}
	if d := turn("m", 36_000, 18_000); d.Prompt != 10_000 {
		t.Errorf("first guess %d tokens", d.Prompt)
	}
	for range 100 {
		turn("m", 36_000, 18_000)
	}
	if d := turn("m", 36_000, 18_000); d.Prompt < 17_500 || d.Prompt > 18_500 {
		t.Errorf("after 100 answers %d tokens, want 18,000", d.Prompt)
	}
	if d := turn("other", 36_000, 9000); d.Prompt != 10_000 {
		t.Errorf("another model's first guess is %d tokens", d.Prompt)
	}
}

// An engine's speed is learned from prefills that it did alone; queueing does not look like slowness.
func TestPrefillRateIsLearnedFromLonePrefills(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 0))
	rate := func() float64 { return w.Snapshot()[0].PrefillRate }
	for i := range 20 { // ten at a time: each but the first waits for others
		var flight []*Charge
		for j := range 10 {
			ch, _ := w.start(0, begin(0, 0, uint64(100*i+j+1), 72_000))
			flight = append(flight, ch)
		}
		w.sleep(40 * time.Second)
		for _, ch := range flight {
			ch.FirstToken(w.now)
			ch.Release(w.now, Outcome{PromptTokens: 20_000, CachedTokens: 0})
		}
	}
	if rate() != 8000 {
		t.Errorf("a queue was taken for slowness: %.0f tokens/s", rate())
	}
	for i := range 10 {
		ch, _ := w.start(0, begin(0, 0, uint64(9000+i), 72_000))
		w.sleep(time.Minute) // held back by the proxy
		ch.Restart(w.now)
		w.sleep(10 * time.Second)
		ch.FirstToken(w.now)
		ch.Release(w.now, Outcome{PromptTokens: 20_000, CachedTokens: 0})
	}
	if math.Abs(rate()-2000) > 1 {
		t.Errorf("%.0f tokens/s, want 2,000", rate())
	}
}

func TestUnknownCapacityGrowsWithTheEvidence(t *testing.T) {
	w := newWorld(t, Options{DefaultKVTokens: 20_000}, fleet(1, 0))
	a := begin(0, 0, 1, 60_000)
	ch, _ := w.start(1, a)
	w.answer(ch, 16_600, 0)
	for i := range 5 {
		ch, _ := w.start(uint64(2+i), begin(0, 0, uint64(2+i), 60_000))
		w.answer(ch, 16_600, 0)
	}
	ch, d := w.start(1, a.say(1, 400))
	if d.Warm > 5000 {
		t.Fatalf("test is broken: %+v", d)
	}
	w.answer(ch, 16_700, 16_592)
	v := w.Snapshot()[0]
	if v.Capacity < 30_000 || v.KVKnown {
		t.Errorf("16,592 tokens were cached where none were expected: %+v", v)
	}
	w.settled()
}

// A cache that was lost without notice: two sessions that find nothing are enough to stop believing in the rest.
func TestSilentResetIsNoticed(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 1_000_000))
	var talks []*talk
	for i := range 20 {
		talks = append(talks, begin(0, 0, uint64(i), 70_000))
		ch, _ := w.place(&Turn{Session: uint64(100 + i), Exclude: []string{"e1"}, Prompt: talks[i].prompt()})
		w.answer(ch, 19_444, 0)
	}
	w.sleep(time.Minute)
	next := func(i, cached int) Decision {
		ch, d := w.start(uint64(100+i), talks[i].say(uint64(i), 400))
		w.answer(ch, 19_555, cached)
		return d
	}
	next(19, 0) // the youngest, so that all others are older
	if d := next(1, 19_440); d.Warm < 19_000 {
		t.Errorf("one session that found nothing changed the belief in another: %+v", d)
	}
	w.sleep(time.Minute)
	next(18, 0)
	next(17, 0)
	if d := next(5, 0); d.Warm != 0 {
		t.Errorf("two sessions found nothing, and the third is still believed warm: %+v", d)
	}
	if d := next(18, 19_440); d.Warm < 19_000 {
		t.Errorf("what was computed since is there: %+v", d)
	}
	if w.Gauges().Totals.Corrected == 0 {
		t.Error("the correction was not counted")
	}
	w.settled()
}

// A client that changes a word at the front of each prompt hurts nobody but itself.
func TestSessionThatNeverHitsIsBelieved(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 1_000_000))
	healthy, odd := begin(0, 0, 1, 70_000), begin(0, 0, 2, 70_000)
	for n := range 12 {
		ch, d := w.start(1, healthy.say(uint64(n), 400))
		w.answer(ch, 19_500, min(d.Warm, 19_500))
		if n > 0 && d.Warm < 19_000 {
			t.Errorf("turn %d of the healthy session: %+v", n, d)
		}
		w.sleep(time.Minute)
		ch, d = w.start(2, odd.say(uint64(n), 400))
		w.answer(ch, 19_500, 16)
		if n > 3 && d.Warm > 100 {
			t.Errorf("turn %d of the odd session: %+v", n, d)
		}
	}
	if w.Gauges().Totals.Corrected != 0 {
		t.Error("one odd session changed the belief in others")
	}
}

// An engine without prefix caching: its answers say so, and then nothing binds work to it but the binding.
func TestEngineThatDoesNotCache(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 1_000_000))
	for n := range 40 {
		c := begin(0, 0, uint64(n), 70_000)
		for m := range 2 {
			ch, _ := w.start(uint64(n+1), c.say(uint64(m), 400))
			w.answer(ch, 19_500, 0)
		}
	}
	if v := w.Snapshot()[0]; v.Caches {
		t.Errorf("40 answers without a cached token: %+v", v)
	}
	ch, d := w.start(0, begin(0, 0, 39, 70_000))
	if d.Warm != 0 {
		t.Errorf("believed warm: %+v", d)
	}
	w.answer(ch, 19_500, 19_000)
	if v := w.Snapshot()[0]; !v.Caches {
		t.Error("an answer with cached tokens did not clear it")
	}
	w.settled()
}

// C111: a restart is told, and the engine counts as cold at once.
func TestForgottenEngineIsCold(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 0))
	c := begin(1, 30_000, 1, 500)
	d := w.turn(1, c)
	w.Forget(w.now, d.Engine)
	if g := w.Gauges(); g.IndexTokens != 0 || g.IndexPoints != 0 {
		t.Errorf("still indexed: %+v", g)
	}
	if d := w.turn(1, c.say(1, 300)); d.Warm != 0 || d.Available != 0 {
		t.Errorf("still believed warm: %+v", d)
	}
}

// What the engine never took is not believed to be there.
func TestFailedRequestLeavesNoWarmth(t *testing.T) {
	w := newWorld(t, Options{}, fleet(1, 0))
	c := begin(1, 30_000, 1, 500)
	ch, _ := w.start(1, c)
	ch.Release(w.now, Outcome{Failed: true})
	if g := w.Gauges(); g.IndexPoints != 0 {
		t.Errorf("indexed: %+v", g)
	}
}

// A machine that stalls makes one prefill look a hundred times slower than it is: before anything is known and later, the
// engine is not taken for slow, and sessions do not leave it for that.
func TestOneStallDoesNotMakeAnEngineSlow(t *testing.T) {
	for stalled := range 8 {
		var r rate
		for i := range 8 {
			elapsed := int64(time.Second)
			if i == stalled {
				elapsed = int64(100 * time.Second)
			}
			r.learn(10_000, elapsed)
			if i > 0 && r.perSecond < 8_000 {
				t.Errorf("stall at sample %d: %.0f tokens/s after sample %d", stalled, r.perSecond, i)
			}
		}
	}
	var r rate // an engine that really changes is followed all the same
	for range 10 {
		r.learn(10_000, int64(time.Second))
	}
	for range 15 {
		r.learn(1_000*10, int64(5*time.Second))
	}
	if r.perSecond > 2_500 {
		t.Errorf("an engine that became five times slower counts as %.0f tokens/s", r.perSecond)
	}
}
