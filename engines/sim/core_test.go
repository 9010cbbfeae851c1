package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// words are n token ids; equal first arguments give equal beginnings.
func words(text, n int) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = uint64(text)<<32 | uint64(i)
	}
	return ids
}

// bench is a core with its own clock, for stories.
type bench struct {
	t      *testing.T
	core   *Core
	now    int64
	events []Event
	count  int
}

func newBench(t *testing.T, opt Options) *bench {
	if opt.Cost == (Cost{}) {
		opt.Cost = Cost{Base: 0.001, Prefill: 0.001}
	}
	return &bench{t: t, core: NewCore(opt)}
}

func (b *bench) submit(id string, tokens []uint64, output int) {
	b.t.Helper()
	p := HashTokens(0, b.core.opt.BlockTokens, tokens)
	if err := b.core.Submit(Request{ID: id, Prompt: p, MaxTokens: output}); err != nil {
		b.t.Fatalf("submit %s: %v", id, err)
	}
}

// step ends the step in flight and begins the next; its events are kept.
func (b *bench) step() (time.Duration, []Event) {
	d, events := b.core.Step(b.now)
	b.events = append(b.events, events...)
	b.now += int64(d)
	return d, events
}

// run steps until nothing is left to do.
func (b *bench) run() {
	b.t.Helper()
	for i := 0; b.core.Live() > 0; i++ {
		if i > 100_000 {
			b.t.Fatalf("%d requests never end", b.core.Live())
		}
		b.step()
	}
}

// ask runs one request alone and returns the tokens it found cached.
func (b *bench) ask(tokens []uint64, output int) (cached int) {
	b.t.Helper()
	b.count++
	id := fmt.Sprint("ask-", b.count)
	b.submit(id, tokens, output)
	b.run()
	return b.find(Finished, id).Cached
}

func (b *bench) find(kind EventKind, id string) Event {
	b.t.Helper()
	for _, e := range b.events {
		if e.Kind == kind && e.ID == id {
			return e
		}
	}
	b.t.Fatalf("no event %q of %s", kind, id)
	return Event{}
}

func (b *bench) saw(kind EventKind, id string) bool {
	for _, e := range b.events {
		if e.Kind == kind && e.ID == id {
			return true
		}
	}
	return false
}

func wantInt(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

func TestARepeatedPromptHitsAllButItsLastBlock(t *testing.T) {
	for _, c := range []struct{ block, tokens, cached int }{
		{16, 160, 144}, {16, 161, 160}, {16, 16, 0}, {32, 13_825, 13_824},
	} {
		b := newBench(t, Options{BlockTokens: c.block})
		wantInt(t, "first time", b.ask(words(1, c.tokens), 1), 0)
		wantInt(t, fmt.Sprintf("%d tokens in blocks of %d again", c.tokens, c.block), b.ask(words(1, c.tokens), 1), c.cached)
	}
}

func TestANextTurnHitsTheAnswerToo(t *testing.T) {
	b := newBench(t, Options{BlockTokens: 16})
	first := HashTokens(0, 16, words(1, 100))
	answer := words(2, 60)
	if err := b.core.Submit(Request{ID: "turn 1", Prompt: first, Output: answer, MaxTokens: 60}); err != nil {
		t.Fatal(err)
	}
	b.run()
	// The last token of the answer was sampled and never computed.
	next := append(append(words(1, 100), answer...), words(3, 40)...)
	wantInt(t, "turn 2", b.ask(next, 1), (100+60-1)/16*16)
}

func TestAForkHitsUpToWhereItBranches(t *testing.T) {
	b := newBench(t, Options{BlockTokens: 16})
	b.ask(words(1, 1000), 1)
	fork := append(words(1, 500), words(2, 300)...)
	wantInt(t, "fork", b.ask(fork, 1), 496)
	wantInt(t, "another conversation", b.ask(words(3, 1000), 1), 0)
}

func TestPromptsLoseTheirTailsAsOnARealEngine(t *testing.T) {
	// Measured on vLLM 0.32.0 with 700 blocks of 32 tokens: four prompts of 6,223 tokens in turn, over
	// and over. What they find depends on how far their answers reach into new blocks.
	opt := Options{BlockTokens: 32, KVTokens: 22_400, MaxBatchedTokens: 512}
	for _, c := range []struct{ output, cached int }{{1, 3712}, {4, 3712}, {18, 3648}, {20, 3616}, {64, 3520}} {
		b := newBench(t, opt)
		for pass := 0; pass < 4; pass++ {
			for p := 0; p < 4; p++ {
				got := b.ask(words(p, 6223), c.output)
				if pass == 3 {
					wantInt(t, fmt.Sprintf("prompt %d, %d tokens of answer", p, c.output), got, c.cached)
				}
			}
		}
	}
	b := newBench(t, opt) // three fit
	for p := 0; p < 6; p++ {
		want := 0
		if p >= 3 {
			want = 6208
		}
		wantInt(t, fmt.Sprintf("three prompts, request %d", p), b.ask(words(p%3, 6223), 1), want)
	}
}

func TestALongPrefillKeepsNewcomersOutButDecodesGoOn(t *testing.T) {
	b := newBench(t, Options{MaxBatchedTokens: 512, KVTokens: 100_000})
	b.submit("talker", words(1, 100), 1000)
	b.step()
	b.submit("long", words(2, 5120), 1)
	b.step()
	b.submit("short", words(3, 50), 1)
	for !b.saw(FirstToken, "long") {
		before := b.core.live["talker"].produced
		b.step()
		if got := b.core.live["talker"].produced; got != before+1 {
			t.Fatalf("the running answer did not get its token beside the prefill: %d then %d", before, got)
		}
		if b.saw(FirstToken, "short") && !b.saw(FirstToken, "long") {
			t.Fatal("the short prompt got its first token before the long one")
		}
	}
	// 511 a step beside the decode: the eleventh step has room left for the short one.
	b.step()
	if !b.saw(FirstToken, "short") {
		t.Error("the short prompt did not get in with the last chunk")
	}
}

func TestAThresholdLetsShortPromptsPass(t *testing.T) {
	b := newBench(t, Options{MaxBatchedTokens: 512, LongPrefillThreshold: 256})
	b.submit("long", words(2, 5120), 1)
	b.step()
	b.submit("short", words(3, 50), 1)
	b.step()
	b.step()
	if !b.saw(FirstToken, "short") || b.saw(FirstToken, "long") {
		t.Error("the short prompt should be answered long before the long one")
	}
}

func TestAnAbortTakesEffectAtTheStepsEndAndLosesNothing(t *testing.T) {
	b := newBench(t, Options{MaxBatchedTokens: 512, BlockTokens: 16})
	b.submit("long", words(1, 5120), 1)
	b.step()
	d, _ := b.step() // the second chunk is in flight
	b.now -= int64(d) / 2
	b.core.Abort("long")
	if rest, events := b.core.Step(b.now); rest <= 0 || len(events) != 0 {
		t.Fatalf("an abort must not end the step in flight: rest %v, events %v", rest, events)
	}
	if b.core.Stats().Used == 0 {
		t.Fatal("memory is freed only at the step's end")
	}
	b.now += int64(d) / 2
	b.step()
	if !b.saw(Aborted, "long") || b.core.Stats().Used != 0 {
		t.Fatalf("not aborted at the step's end: %+v", b.core.Stats())
	}
	wantInt(t, "resubmitted", b.ask(words(1, 5120), 1), 1024)
}

func TestOutOfMemoryThrowsTheLastRequestBack(t *testing.T) {
	b := newBench(t, Options{BlockTokens: 16, KVTokens: 16 * 41, MaxModelLen: 600})
	for i := 0; i < 4; i++ {
		b.submit(fmt.Sprint("r", i), words(i, 144), 200) // 22 blocks each in the end, 40 in all
	}
	b.run()
	if b.core.Stats().Preempted == 0 {
		t.Error("nobody was preempted")
	}
	for i := 0; i < 4; i++ {
		wantInt(t, fmt.Sprint("tokens of r", i), b.find(Finished, fmt.Sprint("r", i)).Tokens, 200)
	}
	if st := b.core.Stats(); st.Used != 0 {
		t.Errorf("memory still held: %+v", st)
	}
}

func TestSubmitRefusesWhatCannotRun(t *testing.T) {
	c := NewCore(Options{MaxModelLen: 100})
	ok := Request{ID: "a", Prompt: HashTokens(0, 16, words(1, 50))}
	if err := c.Submit(ok); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		r    Request
		want error
	}{
		{ok, ErrDuplicate},
		{Request{ID: "b"}, ErrEmpty},
		{Request{ID: "c", Prompt: HashTokens(0, 16, words(1, 100))}, ErrTooLong},
		{Request{ID: "d", Prompt: HashTokens(0, 8, words(1, 50))}, nil},
	} {
		if err := c.Submit(bad.r); err == nil || bad.want != nil && !errors.Is(err, bad.want) {
			t.Errorf("submit %s: %v, want %v", bad.r.ID, err, bad.want)
		}
	}
}

func TestSGLangFreezesDecodesWhileItPrefills(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		b := newBench(t, Options{Mode: SGLang, MaxBatchedTokens: 512, MixedChunk: mixed})
		b.submit("talker", words(1, 100), 1000)
		b.step()
		b.submit("long", words(2, 5120), 1)
		b.step()
		before := b.core.live["talker"].produced
		b.submit("short", words(3, 50), 1)
		for !b.saw(FirstToken, "long") {
			b.step()
			if b.saw(FirstToken, "short") && !b.saw(FirstToken, "long") {
				t.Fatal("the short prompt overtook the chunked one")
			}
		}
		got := b.core.live["talker"].produced - before
		if mixed && got < 9 || !mixed && got > 1 {
			t.Errorf("mixed %v: the running answer got %d tokens during the prefill", mixed, got)
		}
	}
}

func TestSGLangReusesTokenByToken(t *testing.T) {
	b := newBench(t, Options{Mode: SGLang, MaxBatchedTokens: 512})
	b.ask(words(1, 13_008), 1)
	wantInt(t, "again", b.ask(words(1, 13_008), 1), 13_007)
	wantInt(t, "next turn", b.ask(append(words(1, 13_008), words(2, 21)...), 1), 13_008)
	wantInt(t, "fork", b.ask(append(words(1, 5_001), words(3, 100)...), 1), 5_001)
}

func TestSGLangLosesTheChunkInFlightAtAnAbort(t *testing.T) {
	b := newBench(t, Options{Mode: SGLang, MaxBatchedTokens: 512})
	b.submit("long", words(1, 5120), 1)
	b.step() // chunk 1 runs
	b.step() // chunk 2 runs, chunk 1 is stashed
	b.step() // chunk 3 runs, chunk 2 is stashed
	b.core.Abort("long")
	b.step() // chunk 3 is done but not stashed
	if !b.saw(Aborted, "long") {
		t.Fatal("not aborted")
	}
	wantInt(t, "resubmitted", b.ask(words(1, 5120), 1), 1024)
}

func TestSGLangEndsAnAbortedAnswerWithOneMorePass(t *testing.T) {
	b := newBench(t, Options{Mode: SGLang})
	b.submit("talker", words(1, 100), 1000)
	for i := 0; i < 5; i++ {
		b.step()
	}
	b.core.Abort("talker")
	for i := 0; i < 2 && !b.saw(Aborted, "talker"); i++ {
		b.step()
	}
	if !b.saw(Aborted, "talker") || b.core.Stats().Used != 0 {
		t.Errorf("still there: %+v", b.core.Stats())
	}
}

func TestSGLangRefusesWhenItsQueueIsFull(t *testing.T) {
	b := newBench(t, Options{Mode: SGLang, MaxQueued: 2, MaxBatchedTokens: 512})
	b.submit("long", words(1, 5120), 1)
	b.step()
	b.submit("q1", words(2, 10), 1)
	b.submit("q2", words(3, 10), 1)
	err := b.core.Submit(Request{ID: "q3", Prompt: HashTokens(0, 1, words(4, 10))})
	if !errors.Is(err, ErrQueueFull) {
		t.Fatalf("got %v", err)
	}
	// A lone chunked prefill is neither running nor waiting.
	st := b.core.Stats()
	wantInt(t, "running", st.Running, 0)
	wantInt(t, "waiting", st.Waiting, 2)
	wantInt(t, "fresh", st.WaitingFresh, 5120+20)
	b.run()
}

func TestLlamaKeepsOnePrefixPerSlot(t *testing.T) {
	b := newBench(t, Options{Mode: Llama, MaxRunning: 2, KVTokens: 4000})
	wantInt(t, "a", b.ask(words(1, 500), 1), 0)
	wantInt(t, "b", b.ask(words(2, 500), 1), 0)
	wantInt(t, "a's next turn", b.ask(append(words(1, 500), words(3, 100)...), 1), 500)
	wantInt(t, "c takes the slot used longest ago, b's", b.ask(words(4, 500), 1), 0)
	wantInt(t, "b again", b.ask(words(2, 500), 1), 0)
	b.submit("x", words(5, 100), 50)
	b.submit("y", words(6, 100), 50)
	b.submit("z", words(7, 100), 1)
	b.step()
	wantInt(t, "waiting", b.core.Stats().Waiting, 1)
	b.run()
}

func TestStepsLastAsLongAsTheirWork(t *testing.T) {
	c := NewCore(Options{MaxBatchedTokens: 1000, Cost: Cost{Base: 0.5, Prefill: 0.001, Context: 0.001, Decode: 0.25}})
	c.Submit(Request{ID: "a", Prompt: HashTokens(0, 16, words(1, 1500)), MaxTokens: 2})
	var steps []time.Duration
	now := int64(0)
	for {
		d, _ := c.Step(now)
		if d == 0 {
			break
		}
		steps = append(steps, d)
		now += int64(d)
	}
	want := []time.Duration{2000 * time.Millisecond, 1625 * time.Millisecond, 750 * time.Millisecond}
	if fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", steps, want)
	}
}
