package ring

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Sessions without ids that share a 55 KB system prompt: every turn stays, and no engine gets much more than its share (C086). Both
// when sessions come one after the other to an idle fleet and when all run at once.
// balanced fails if an engine has more than limit times the mean.
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
// C084: charged when picked, so a burst of equal prompts spreads.
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
// A title request under a session's key changes nothing; a compaction becomes the session's history once two turns have built on it.
// A true fork follows its parent, and leaves it when the parent's engine is full; a child that shares nothing goes home.
// C098: children sent right behind their parent, under its key, share what it is still computing.
// C100: the longest common prefix counts, not a hash of the whole system prompt.
// A prompt that repeats one in flight is another session with the same beginning, and is placed as a new one.
// The same key in another scope (a title by a small model) is another session, and both are found again.
// A continuation by response id carries only what is new: it stays with the engine that keeps the rest, even a busy one.
// C087: after 20,000 requests with cancels and errors the distribution is as even as at the start.
// A newly added engine gets its share of the new sessions although it is cold, and no bound session moves to it.
// Two Placers that see the same events decide the same; and two that know of no sessions choose the same homes whatever the order
// in which they learned of the engines (C093).
// C093: nine turns of one session through three proxies that know nothing of each other, all on one engine.
