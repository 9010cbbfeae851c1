package ring

import (
	"testing"
	"time"
)

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
	for n := range uint64(5) { // a sub-agent that works on while the main agent waits is not a compaction for long
		if d := w.turn(key, agents[7].say(n+10, 2000)); d.Engine != where[7] || d.Reason != Bound {
			t.Errorf("agent 7 left its engine %s: %+v", where[7], d)
		}
	}
	for n := range uint64(5) {
		if d := w.turn(key, first.say(n+10, 2000)); d.Engine != home.Engine || d.Reason != Bound {
			t.Errorf("the main agent left its warm engine: %+v", d)
		}
	}
	w.settled()
}

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

// A fork of a few hundred tokens follows its history too, on an idle fleet.
func TestSmallForkFollows(t *testing.T) {
	w := newWorld(t, Options{}, fleet(8, 0))
	for n := range uint64(20) {
		c := begin(1, 800, n, 400).say(1, 1500)
		d := w.turn(n+1, c)
		if f := w.turn(n+1000, c.fork().say(2, 200)); f.Engine != d.Engine {
			t.Errorf("fork of session %d: %+v, its history is at %s", n, f, d.Engine)
		}
	}
}

// A load test sends one prompt over and over, hundreds at a time: they spread, nothing grows without bound, no look-up gets slow.
func TestOnePromptHundredsOfTimesAtOnce(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	c := begin(1, 2000, 1, 500)
	load := map[string]int{}
	for range 10 {
		var flight []*Charge
		for range 400 {
			ch, d := w.start(0, c)
			load[d.Engine]++
			flight = append(flight, ch)
			w.sleep(time.Millisecond)
		}
		if n := w.sessions.alike(c.hash); n > maxAlike {
			t.Fatalf("%d sessions end alike", n)
		}
		for _, ch := range flight {
			w.finish(ch)
		}
	}
	balanced(t, load, 4, 1.25)
	w.settled()
}
