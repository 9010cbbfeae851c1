package proxy

import (
	"testing"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// foreign is one engine's lanes with a long prefill in flight, and the turns of other proxies that count there.
func foreign(t *testing.T) (l *engineLanes, now *int64, count func(turn uint64, over bool) gossip.Answer, list *foreignTurns) {
	now, list = new(int64), new(foreignTurns)
	l = newEngineLanes(lane.Options{}, func() int64 { return *now })
	t.Cleanup(l.close)
	ids := uint64(100)
	count = func(turn uint64, over bool) gossip.Answer {
		return list.count(l, turn, over, func() uint64 { ids++; return ids })
	}
	if a := count(7, false); a != gossip.TooLate {
		t.Errorf("with nothing in prefill: %v", a)
	}
	l.c.SetFacts(lane.Facts{PrefillRate: 10_000, StepSeconds: 0.1, AbortSeconds: 0.05, CanPreempt: true, KeepsStep: true})
	l.c.Arrive(*now, lane.Arrival{ID: 1, Fresh: 200_000, Context: 200_000})
	return l, now, count, list
}

// A turn of another proxy asks again while it waits, and its words may come twice: it counts once, and not for ever.
func TestATurnOfAnotherProxyCountsOnceHoweverOftenItAsks(t *testing.T) {
	l, _, count, list := foreign(t)
	waiting := func() int { return l.view().Waiting }
	for range 5 {
		if a := count(7, false); a == gossip.TooLate {
			t.Errorf("behind a prefill: %v", a)
		}
	}
	if n := waiting(); n != 1 {
		t.Errorf("one turn counts as %d", n)
	}
	count(8, false)
	if n := waiting(); n != 2 {
		t.Errorf("two turns count as %d", n)
	}
	eventually(t, "the turns to be forgotten", func() bool {
		list.mu.Lock()
		defer list.mu.Unlock()
		return waiting() == 0 && len(list.list) == 0
	})
	for turn := range uint64(2 * maxForeign) {
		count(100+turn, false)
	}
	if n := waiting(); n > maxForeign {
		t.Errorf("%d turns of others count", n)
	}
}

// A turn that has its first token keeps nobody waiting from then on, whatever of its words still comes.
func TestATurnOfAnotherProxyThatIsOverCountsNoMore(t *testing.T) {
	l, _, count, _ := foreign(t)
	if a := count(9, true); a != gossip.TooLate {
		t.Errorf("one that never asked: %v", a)
	}
	count(7, false)
	count(7, true)
	count(7, false) // was under way for longer
	count(7, true)
	if n := l.view().Waiting; n != 0 {
		t.Errorf("%d turns count", n)
	}
}

// What gave way is told once for each turn, and when it has: not when it is asked for.
func TestATurnOfAnotherProxyIsToldWhatGaveWay(t *testing.T) {
	l, now, count, _ := foreign(t)
	*now = 3e9
	if a := count(7, false); a != gossip.Refused {
		t.Errorf("nothing has given way yet: %v", a)
	}
	for ; l.view().Preempting == 0 && *now < 6e9; *now += 1e7 {
		l.tick()
	}
	l.preempted(1, -1)
	if v := l.view(); v.Back != 1 {
		t.Fatalf("the long prefill is not taken back: %+v", v)
	}
	if a := count(7, false); a != gossip.Freed {
		t.Errorf("after an abort: %v", a)
	}
	if a := count(7, true); a != gossip.Refused {
		t.Errorf("told a second time: %v", a)
	}

	// A long one that waits between two slices gives way, too.
	if v := l.view(); v.InFlight != 1 {
		t.Fatalf("the long one is not sent again: %+v", v)
	}
	*now += 1e9
	count(8, false)
	for ; l.view().Preempting == 0 && *now < 12e9; *now += 1e7 {
		l.tick()
	}
	l.preempted(1, -1)
	if a := count(8, true); a != gossip.Freed {
		t.Errorf("at the end of a turn something had given way to: %v", a)
	}
}
