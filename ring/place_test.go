package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Sessions without ids that share a 55 KB system prompt: every turn stays, and no engine gets much more than its share (C086). Both
// when sessions come one after the other to an idle fleet and when all run at once.
func TestSessionsWithoutIdsThatShareASystemPrompt(t *testing.T) {
	for _, engines := range []int{2, 4, 8} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d engines, together %v", engines, together), func(t *testing.T) {
				w := newWorld(t, Options{}, fleet(engines, 1_000_000))
				const sessions, turns = 64, 10
				var talks [sessions]*talk
				for i := range talks {
					talks[i] = begin(7, 55_000, uint64(100+i), 400)
				}
				where := map[int]string{}
				load := map[string]int{}
				check := func(i int, d Decision) {
					if old, ok := where[i]; ok && old != d.Engine {
						t.Errorf("session %d moved from %s to %s (%s)", i, old, d.Engine, d.Reason)
					}
					if want := talks[i].first; where[i] != "" && (!d.Extends || d.Turn < 2) && want > 0 {
						t.Errorf("session %d: a later turn was not recognised: %+v", i, d)
					}
					where[i] = d.Engine
					load[d.Engine]++
				}
				grow := func(i, n int) { talks[i].say(uint64(i*1000+n), 1200).say(uint64(n), 3000) }
				if together {
					for n := range turns {
						var flight []*Charge
						for i := range talks {
							ch, d := w.start(0, talks[i])
							w.sleep(2 * time.Millisecond)
							check(i, d)
							flight = append(flight, ch)
							grow(i, n)
						}
						for _, ch := range flight {
							ch.FirstToken(w.now)
							ch.Release(w.now, Outcome{CachedTokens: -1})
						}
						w.sleep(5 * time.Second)
					}
				} else {
					for i := range talks {
						for n := range turns {
							check(i, w.turn(0, talks[i]))
							grow(i, n)
						}
					}
				}
				balanced(t, load, engines, 1.25)
				if g := w.Gauges(); g.Sessions != sessions {
					t.Errorf("%d sessions known, want %d", g.Sessions, sessions)
				}
				w.settled()
			})
		}
	}
}

// balanced fails if an engine has more than limit times the mean.
func balanced(t *testing.T, load map[string]int, engines int, limit float64) {
	t.Helper()
	most, sum := 0, 0
	for _, n := range load {
		most, sum = max(most, n), sum+n
	}
	if ratio := float64(most) * float64(engines) / float64(sum); ratio > limit {
		t.Errorf("max/mean load %.2f, want at most %.2f: %v", ratio, limit, load)
	} else {
		t.Logf("max/mean load %.2f", ratio)
	}
}

func TestSessionStaysThroughQueuesAndBusyStates(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 1_000_000))
	c := begin(1, 20_000, 1, 2000)
	home := w.turn(42, c).Engine
	c.say(1, 100_000)
	w.turn(42, c)
	for i := range 40 { // others keep its engine busy for 12 s
		ch, d := w.place(&Turn{Exclude: others(4, home), Prompt: begin(0, 0, uint64(i)+50, 9000).prompt()})
		if d.Engine != home {
			t.Fatal("test is broken")
		}
		defer ch.Release(w.now, Outcome{})
	}
	if d := w.turn(42, c.say(2, 3000)); d.Engine != home || d.Reason != Bound || d.Turn != 3 || !d.Extends {
		t.Errorf("the session left its warm engine: %+v", d)
	}
	busy := fleet(4, 1_000_000)
	for i := range busy {
		if busy[i].Name == home {
			busy[i].State = Busy
		}
	}
	w.SetEngines(w.now, busy)
	if d := w.turn(42, c.say(3, 3000)); d.Engine != home || d.Reason != Bound {
		t.Errorf("the session left its engine for a 429 lately: %+v", d)
	}
	if d := w.turn(43, begin(1, 20_000, 3, 2000)); d.Engine == home {
		t.Errorf("a new session went to the busy engine: %+v", d)
	}
}

func others(n int, but string) []string {
	var names []string
	for i := range n {
		if name := fmt.Sprintf("e%d", i); name != but {
			names = append(names, name)
		}
	}
	return names
}

func TestSessionMovesWhenTheQueueIsVeryLong(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 10_000_000))
	c := begin(1, 20_000, 1, 2000)
	home := w.turn(42, c).Engine
	ch, _ := w.place(&Turn{Exclude: others(2, home), Prompt: begin(0, 0, 9, 1_000_000).prompt()}) // 35 s of work
	defer ch.Release(w.now, Outcome{})
	d := w.turn(42, c.say(1, 3000))
	if d.Engine == home || d.Reason != Moved {
		t.Errorf("the session waits half a minute for 1 s of prefill: %+v", d)
	}
	if again := w.turn(42, c.say(2, 3000)); again.Engine != d.Engine || again.Reason != Bound {
		t.Errorf("the session did not settle: %+v", again)
	}
}

// Cold at home (evicted), and another engine is cheaper: only then is a short gain reason enough.
func TestColdSessionMovesToTheCheaperEngine(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 60_000))
	c := begin(1, 2000, 1, 2000).say(1, 150_000)
	home := w.turn(42, c).Engine
	for i := range 3 { // others push it out of its engine's memory
		ch, _ := w.place(&Turn{Exclude: others(2, home), Prompt: begin(0, 0, uint64(i)+9, 150_000).prompt()})
		ch.Release(w.now, Outcome{})
	}
	w.sleep(40 * time.Minute) // nobody is active any more
	ch, _ := w.place(&Turn{Exclude: others(2, home), Prompt: begin(0, 0, 99, 40_000).prompt()})
	d := w.turn(42, c.say(2, 1000))
	if d.Engine == home || d.Reason != Moved || d.Warm*5 > d.Prompt {
		t.Errorf("a cold session queues behind another at home: %+v", d)
	}
	ch.Release(w.now, Outcome{})
}

func TestFailoverIsSaidOnceAndStays(t *testing.T) {
	w := newWorld(t, Options{}, fleet(3, 0))
	c := begin(1, 20_000, 1, 2000)
	first, d := w.start(42, c)
	first.Release(w.now, Outcome{Failed: true})
	second, again := w.start(42, c, d.Engine)
	if again.Engine == d.Engine || again.Reason != Failover || again.Turn != 1 {
		t.Fatalf("after %s failed: %+v", d.Engine, again)
	}
	w.finish(second)
	next := w.turn(42, c.say(1, 1000))
	if next.Engine != again.Engine || next.Reason != Bound || next.Turn != 2 {
		t.Errorf("the session did not stay where it was re-placed: %+v", next)
	}
	down := fleet(3, 0)
	for i := range down {
		if down[i].Name == next.Engine {
			down[i].State = Down
		}
	}
	w.SetEngines(w.now, down)
	moved := w.turn(42, c.say(2, 1000))
	if moved.Engine == next.Engine || moved.Reason != Failover {
		t.Errorf("its engine is down: %+v", moved)
	}
	w.SetEngines(w.now, fleet(3, 0)) // it is back
	if d := w.turn(42, c.say(3, 1000)); d.Engine != moved.Engine || d.Reason != Bound {
		t.Errorf("the session hopped back: %+v", d)
	}
	w.settled()
}

// The same without an id: the replay of a failed request is not taken for another session that begins alike.
func TestFailoverWithoutAnIdKeepsTheSession(t *testing.T) {
	w := newWorld(t, Options{}, fleet(3, 0))
	c := begin(1, 20_000, 1, 2000)
	_, d := w.start(0, c) // still charged while the next engine is tried
	ch, again := w.start(0, c, d.Engine)
	if again.Session != d.Session || again.Reason != Failover {
		t.Errorf("replayed %+v as %+v", d, again)
	}
	w.finish(ch)
	if next := w.turn(0, c.say(1, 1000)); next.Session != d.Session || next.Engine != again.Engine || next.Turn != 2 {
		t.Errorf("the session did not stay where it was re-placed: %+v", next)
	}
}

func TestDrainingEngineTakesNoTurns(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 0))
	c := begin(1, 20_000, 1, 2000)
	ch, d := w.start(42, c)
	drain := fleet(2, 0)
	for i := range drain {
		if drain[i].Name == d.Engine {
			drain[i].State = Draining
		}
	}
	w.SetEngines(w.now, drain)
	w.finish(ch) // what runs there goes on
	if next := w.turn(42, c.say(1, 100)); next.Engine == d.Engine || next.Reason != Moved {
		t.Errorf("placed on a draining engine: %+v", next)
	}
	w.settled()
}

func TestOnlyAndErrors(t *testing.T) {
	w := newWorld(t, Options{}, []Engine{{Name: "a", Models: []string{"m"}, State: Ready}, {Name: "b", Models: []string{"n"}, State: Down}})
	ch, d := w.place(&Turn{Model: []byte("m"), Session: 1, Prompt: begin(0, 0, 1, 100).prompt()})
	if d.Engine != "a" || d.Reason != Only {
		t.Errorf("one engine serves the model: %+v", d)
	}
	ch.Release(w.now, Outcome{})
	var dd Decision
	if _, err := w.Place(&Turn{Model: []byte("x")}, &dd); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("unknown model: %v", err)
	}
	if _, err := w.Place(&Turn{Model: []byte("n")}, &dd); !errors.Is(err, ErrNoEngine) {
		t.Errorf("engine down: %v", err)
	}
	if _, err := w.Place(&Turn{Model: []byte("m"), Exclude: []string{"a"}}, &dd); !errors.Is(err, ErrNoEngine) {
		t.Errorf("all engines tried: %v", err)
	}
	if _, err := New(Options{}).Place(&Turn{}, &dd); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("no engines at all: %v", err)
	}
	w.settled()
}

// C082: brand-new prompts go to the idle engine, however much the index knows of it.
func TestNewPromptsAvoidTheBusyEngine(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 10_000_000))
	for i := range 500 {
		ch, _ := w.place(&Turn{Exclude: []string{"e0"}, Prompt: begin(0, 0, uint64(i)+1, 4000).prompt()})
		ch.Release(w.now, Outcome{})
	}
	w.sleep(40 * time.Minute)
	for range 40 {
		ch, _ := w.place(&Turn{Exclude: []string{"e1"}, Prompt: begin(0, 0, 7777, 4000).prompt()})
		ch.FirstToken(w.now)
	}
	for i := range 20 {
		if ch, d := w.start(0, begin(0, 0, uint64(i)+9000, 4000)); d.Engine != "e1" {
			t.Errorf("new prompt %d went to the busy engine: %+v", i, d)
		} else {
			w.finish(ch)
		}
	}
}

// C084: charged when picked, so a burst of equal prompts spreads.
func TestBurstOfLongPromptsSpreads(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	load := map[string]int{}
	for i := range 40 {
		_, d := w.start(uint64(1000+i), begin(0, 0, uint64(i), 115_000))
		load[d.Engine]++
		w.sleep(5 * time.Millisecond)
	}
	for name, n := range load {
		if n < 8 || n > 12 {
			t.Errorf("%s got %d of 40", name, n)
		}
	}
}

// C089: a greeting of 60 tokens attracts nobody, 18,000 warm tokens do unless the queue there costs more.
func TestWarmthAttractsByItsWorth(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 0))
	greeting := begin(0, 0, 1, 210)
	long := begin(0, 0, 2, 65_000)
	for _, c := range []*talk{greeting, long} {
		ch, _ := w.place(&Turn{Exclude: []string{"e0"}, Session: uint64(c.bytes), Prompt: c.prompt()})
		ch.Release(w.now, Outcome{})
	}
	w.sleep(40 * time.Minute)
	for range 8 {
		ch, _ := w.place(&Turn{Exclude: []string{"e0"}, Prompt: begin(0, 0, 3, 300).prompt()})
		ch.FirstToken(w.now)
	}
	if _, d := w.start(9, greeting.fork()); d.Engine != "e0" {
		t.Errorf("60 warm tokens: %+v", d)
	}
	if ch, d := w.start(10, long.fork().say(1, 43_000)); d.Engine != "e1" {
		t.Errorf("18,000 warm tokens of 30,000: %+v", d)
	} else {
		ch.Release(w.now, Outcome{})
	}
	w.place(&Turn{Exclude: []string{"e0"}, Prompt: begin(0, 0, 4, 100_000).prompt()}) // 3.5 s of queue against 2.3 s of saving
	if _, d := w.start(11, long.fork().say(2, 43_000)); d.Engine != "e0" {
		t.Errorf("18,000 warm tokens behind 28,000 fresh ones: %+v", d)
	}
}

// C101: thirty sub-agents under one key are placed by their prompts, and the main agent's session stays where it is.
func TestSwarmUnderOneKey(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	const key = 77
	first := begin(5, 50_000, 5, 1000).say(1, 200_000)
	home := w.turn(key, first)
	load := map[string]int{}
	var agents []*talk
	var flight []*Charge
	where := map[int]string{}
	for i := range 30 {
		c := begin(uint64(10+i%3), 30_000, uint64(100+i), 4000)
		ch, d := w.start(key, c)
		if d.Session == key || d.Extends {
			t.Errorf("agent %d was taken for the main agent: %+v", i, d)
		}
		load[d.Engine]++
		where[i] = d.Engine
		agents, flight = append(agents, c), append(flight, ch)
		w.sleep(time.Millisecond)
	}
	balanced(t, load, 4, 1.5)
	for _, ch := range flight {
		ch.FirstToken(w.now)
		ch.Release(w.now, Outcome{CachedTokens: -1})
	}
	if d := w.turn(key, first.say(2, 2000)); d.Engine != home.Engine || d.Session != key || d.Turn != 2 || d.Reason != Bound {
		t.Errorf("the main agent left its warm engine: %+v", d)
	}
	for i, c := range agents {
		if d := w.turn(key, c.say(1, 2000)); d.Engine != where[i] || d.Turn != 2 {
			t.Errorf("agent %d left its engine %s: %+v", i, where[i], d)
		}
	}
	if d := w.turn(key, first.say(3, 2000)); d.Engine != home.Engine || d.Session != key || d.Turn != 3 {
		t.Errorf("the main agent left its warm engine: %+v", d)
	}
	w.settled()
}

// A title request under a session's key changes nothing; a compaction becomes the session's history once two turns have built on it.
func TestSideRequestAndCompaction(t *testing.T) {
	w := newWorld(t, Options{}, fleet(8, 0))
	c := begin(5, 50_000, 5, 1000).say(1, 50_000)
	main := w.turn(7, c)
	title := w.turn(7, begin(6, 800, 5, 900))
	if title.Extends || title.Session == main.Session {
		t.Errorf("the title was taken for a turn: %+v", title)
	}
	if d := w.turn(7, c.say(2, 900)); d.Session != 7 || d.Turn != 2 || d.Reason != Bound {
		t.Errorf("the turn after the title: %+v", d)
	}
	compacted := begin(5, 50_000, 8, 9000)
	before := w.turn(7, compacted)
	if before.Session == 7 {
		t.Errorf("a new history is not the session's at once: %+v", before)
	}
	w.turn(7, compacted.say(1, 900))
	after := w.turn(7, compacted.say(2, 900))
	if after.Session != 7 || after.Turn != 3 || after.Engine != before.Engine || !after.Extends {
		t.Errorf("two turns later the new history is the session's: %+v", after)
	}
	if d := w.turn(7, compacted.say(3, 900)); d.Session != 7 || d.Turn != 4 || d.Reason != Bound {
		t.Errorf("then it goes on: %+v", d)
	}
	if n := w.Gauges().Totals.Adopted; n != 1 {
		t.Errorf("%d compactions counted", n)
	}
	w.settled()
}

// A true fork follows its parent, and leaves it when the parent's engine is full; a child that shares nothing goes home.
func TestForksFollowTheirParentAsFarAsItIsWorth(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 300_000))
	parent := begin(5, 50_000, 5, 1000).say(1, 350_000)
	p := w.turn(1, parent)
	child, d := w.place(&Turn{Session: 99, Parent: 1, Prompt: begin(6, 9000, 9, 3000).prompt()})
	if d.Engine == p.Engine && d.Reason == Parent {
		t.Errorf("a sub-agent that shares nothing follows its parent: %+v", d)
	}
	w.finish(child)
	stayed := 0
	for i := range 12 { // at once, each with 20,000 tokens of its own: the twelfth would wait 30 s, computing all again takes 16 s
		_, d := w.place(&Turn{Session: uint64(10 + i), Parent: 1, Prompt: parent.fork().say(uint64(100+i), 72_000).prompt()})
		if i < 4 && (d.Engine != p.Engine || d.Reason != Parent) {
			t.Errorf("fork %d of 110,000 warm tokens left its parent: %+v", i, d)
		}
		if d.Engine == p.Engine {
			stayed++
		}
	}
	if stayed == 12 {
		t.Error("no fork left the parent's engine, full as it is")
	}
}

// C098: children sent right behind their parent, under its key, share what it is still computing.
func TestChildrenBeforeTheFirstAnswer(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	shared := begin(5, 29_000, 5, 1000)
	_, d := w.start(3, shared.fork().say(1, 400))
	for i := range 5 {
		w.sleep(8 * time.Millisecond)
		if _, child := w.start(3, shared.fork().say(uint64(i+2), 400)); child.Engine != d.Engine {
			t.Errorf("child %d: %+v, parent at %s", i, child, d.Engine)
		}
	}
}

// C100: the longest common prefix counts, not a hash of the whole system prompt.
func TestForkWithAnotherIdInsideTheSystemPrompt(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	system := func(id uint64) *talk {
		c := &talk{hash: 1}
		c.part(1, 18_000, false)
		c.part(id, 3000, true)
		c.head = len(c.chain)
		c.part(9, 500, true)
		c.first = len(c.chain)
		return c
	}
	d := w.turn(1, system(101))
	if f := w.turn(2, system(102)); f.Engine != d.Engine || f.Warm < 4000 {
		t.Errorf("the fork shares 18,000 bytes with %s: %+v", d.Engine, f)
	}
}

// A prompt that repeats one in flight is another session with the same beginning, and is placed as a new one.
func TestSamePromptTwiceAtOnceIsTwoSessions(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	a := begin(1, 60_000, 1, 500)
	b := a.fork()
	chA, dA := w.start(0, a)
	chB, dB := w.start(0, b)
	if dA.Session == dB.Session {
		t.Fatal("two agents that begin alike are one session")
	}
	if dB.Turn != 1 || dB.Extends {
		t.Errorf("the second is not placed as a new one: %+v", dB)
	}
	w.finish(chA)
	if d := w.turn(0, a.say(1, 700)); d.Session != dA.Session || d.Turn != 2 || d.Engine != dA.Engine {
		t.Errorf("the first goes on as %+v", d)
	}
	w.finish(chB)
	if d := w.turn(0, b.say(2, 700)); d.Session != dB.Session || d.Turn != 2 || d.Engine != dB.Engine {
		t.Errorf("the second goes on as %+v", d)
	}
	if d := w.turn(0, b.fork()); d.Session != dB.Session {
		t.Errorf("a retry after the answer is the same session: %+v", d)
	}
	w.settled()
}

// The same key in another scope (a title by a small model) is another session, and both are found again.
func TestOneKeyTwoModels(t *testing.T) {
	engines := []Engine{{Name: "big", Models: []string{"big"}}, {Name: "small", Models: []string{"small"}}}
	w := newWorld(t, Options{}, engines)
	turn := func(model string, seed uint64, c *talk) Decision {
		ch, d := w.place(&Turn{Model: []byte(model), Seed: seed, Session: 5, Prompt: c.prompt()})
		w.finish(ch)
		return d
	}
	title, c := begin(2, 900, 1, 400), begin(1, 30_000, 1, 500)
	s := turn("small", 22, title)
	b := turn("big", 11, c)
	if s.Session == b.Session || s.Engine != "small" || b.Engine != "big" {
		t.Fatalf("one session for two models: %+v, %+v", s, b)
	}
	for n := range 3 {
		if d := turn("big", 11, c.say(uint64(n), 900)); d.Session != b.Session || d.Turn != n+2 {
			t.Errorf("turn %d: %+v", n+2, d)
		}
	}
	ch, d := w.place(&Turn{Model: []byte("big"), Seed: 11, Session: b.Session, Continues: true, Prompt: begin(0, 0, 6, 90).prompt()})
	if w.finish(ch); d.Session != b.Session || d.Turn != 5 {
		t.Errorf("by the decision's own key: %+v", d)
	}
}

// A continuation by response id carries only what is new: it stays with the engine that keeps the rest, even a busy one.
func TestContinuationStays(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	d := w.turn(5, begin(1, 30_000, 1, 500))
	for i := range 60 {
		w.place(&Turn{Exclude: others(4, d.Engine), Prompt: begin(0, 0, uint64(i)+50, 90_000).prompt()})
	}
	ch, next := w.place(&Turn{Session: 5, Continues: true, Prompt: begin(0, 0, 6, 90).prompt()})
	if next.Engine != d.Engine || next.Reason != Bound || next.Turn != 2 {
		t.Errorf("%+v after %+v", next, d)
	}
	ch.Release(w.now, Outcome{})
}

func TestWithoutPromptByLoad(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	load := map[string]int{}
	for range 40 {
		ch, d := w.start(0, nil)
		load[d.Engine]++
		defer ch.Release(w.now, Outcome{})
	}
	balanced(t, load, 4, 1.5)
	if d := w.turn(8, nil); d.Session != 8 || w.turn(8, nil).Engine != d.Engine {
		t.Error("a session without a prompt is bound all the same")
	}
}

// C087: after 20,000 requests with cancels and errors the distribution is as even as at the start.
func TestDistributionDoesNotDrift(t *testing.T) {
	w := newWorld(t, Options{}, fleet(10, 2_000_000))
	random := rand.New(rand.NewPCG(1, 2))
	load := map[string]int{}
	var flight []*Charge
	for i := range 20_000 {
		if i == 10_000 {
			balanced(t, load, 10, 1.25)
			clear(load)
		}
		ch, d := w.start(0, begin(3, 8000, uint64(i)+1000, 2000))
		load[d.Engine]++
		flight = append(flight, ch)
		w.sleep(20 * time.Millisecond)
		for len(flight) > 30 {
			at := random.IntN(len(flight))
			ch := flight[at]
			flight = append(flight[:at], flight[at+1:]...)
			switch random.IntN(20) {
			case 0:
				ch.Release(w.now, Outcome{CachedTokens: -1}) // cancelled in prefill
			case 1:
				ch.Release(w.now, Outcome{Failed: true})
			default:
				ch.FirstToken(w.now)
				ch.Release(w.now, Outcome{CachedTokens: -1, Prefilled: true})
			}
		}
	}
	balanced(t, load, 10, 1.25)
	for _, ch := range flight {
		ch.Release(w.now, Outcome{})
	}
	w.settled()
}

// A newly added engine gets its share of the new sessions although it is cold, and no bound session moves to it.
func TestNewEngineGetsItsShare(t *testing.T) {
	w := newWorld(t, Options{}, fleet(7, 4_000_000))
	var talks []*talk
	for i := range 70 {
		talks = append(talks, begin(3, 54_000, uint64(i), 20_000))
		w.turn(uint64(1000+i), talks[i])
	}
	w.SetEngines(w.now, fleet(8, 4_000_000))
	load := map[string]int{}
	for i := range 80 {
		load[w.turn(uint64(5000+i), begin(3, 54_000, uint64(500+i), 20_000)).Engine]++
		if i < 70 {
			if d := w.turn(uint64(1000+i), talks[i].say(1, 500)); d.Reason != Bound {
				t.Errorf("an old session moved: %+v", d)
			}
		}
	}
	if load["e7"] < 8 {
		t.Errorf("the new engine got %d of 80 sessions: %v", load["e7"], load)
	}
}

// Two Placers that see the same events decide the same; and two that know of no sessions choose the same homes whatever the order
// in which they learned of the engines (C093).
func TestSameEventsSameDecisions(t *testing.T) {
	run := func() (out []string) {
		w := newWorld(t, Options{MaxSessions: 50, MaxIndexTokens: 400_000}, fleet(6, 200_000))
		random := rand.New(rand.NewPCG(3, 4))
		talks := make([]*talk, 40)
		var flight []*Charge
		for i := range 3000 {
			at := random.IntN(len(talks))
			if talks[at] == nil || random.IntN(20) == 0 {
				talks[at] = begin(uint64(at%3), 30_000, uint64(i), 2000)
			}
			talks[at].say(uint64(i), random.IntN(9000)+1)
			ch, d := w.start(uint64(at%4)*uint64(at), talks[at])
			out = append(out, fmt.Sprintf("%s %s %d %d %x %v", d.Engine, d.Reason, d.Warm, d.Turn, d.Session, d.Runners))
			flight = append(flight, ch)
			w.sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			if len(flight) > 10 {
				flight[0].FirstToken(w.now)
				flight[0].Release(w.now, Outcome{PromptTokens: 9000, CachedTokens: random.IntN(9000), Prefilled: true})
				flight = flight[1:]
			}
			if i%500 == 0 {
				w.Forget(w.now, "e3")
				w.check()
			}
		}
		return out
	}
	a, b := run(), run()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("decision %d: %s and %s", i, a[i], b[i])
		}
	}
}

func TestProxiesAgreeWithoutTalk(t *testing.T) {
	engines := fleet(8, 0)
	reversed := fleet(8, 0)
	for i, e := range engines {
		reversed[len(reversed)-1-i] = e
	}
	a, b, c := newWorld(t, Options{}, engines), newWorld(t, Options{}, fleet(3, 0)), newWorld(t, Options{}, reversed)
	b.SetEngines(b.now, reversed)
	proxies := []*world{a, b, c}
	for session := range uint64(50) {
		talk := begin(1, 3000, session, 400)
		id := session % 2 * (session + 1)
		home := ""
		for n := range 9 {
			d := proxies[n%3].turn(id, talk.say(uint64(n), 300))
			if home == "" {
				home = d.Home
			}
			if d.Home != home {
				t.Fatalf("session %d, turn %d: home is %s, was %s", session, n, d.Home, home)
			}
		}
	}
}

// C093: nine turns of one session through three proxies that know nothing of each other, all on one engine.
func TestOneSessionThroughThreeProxies(t *testing.T) {
	for _, id := range []uint64{77, 0} {
		proxies := []*world{newWorld(t, Options{}, fleet(4, 0)), newWorld(t, Options{}, fleet(4, 0)), newWorld(t, Options{}, fleet(4, 0))}
		c := begin(1, 3000, 5, 400)
		engine := ""
		for n := range 9 {
			d := proxies[n%3].turn(id, c.say(uint64(n), 300))
			if engine != "" && d.Engine != engine {
				t.Errorf("id %d, turn %d: %+v, was at %s", id, n, d, engine)
			}
			engine = d.Engine
		}
	}
}
