package proxy

import (
	"testing"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// A turn of another proxy asks again while it waits, and its words may come twice: it counts once, and not for ever.
func TestATurnOfAnotherProxyCountsOnceHoweverOftenItAsks(t *testing.T) {
	now := int64(0)
	l := newEngineLanes(lane.Options{}, func() int64 { return now })
	t.Cleanup(l.close)
	var foreign foreignTurns
	ids := uint64(100)
	next := func() uint64 { ids++; return ids }
	if a := foreign.count(l, 7, next); a != gossip.TooLate {
		t.Errorf("with nothing in prefill: %v", a)
	}
	l.mu.Lock()
	l.c.Arrive(now, lane.Arrival{ID: 1, Fresh: 200_000, Context: 200_000})
	l.mu.Unlock()
	waiting := func() int { return l.view().Waiting }
	for range 5 {
		if a := foreign.count(l, 7, next); a == gossip.TooLate {
			t.Errorf("behind a prefill: %v", a)
		}
	}
	if n := waiting(); n != 1 {
		t.Errorf("one turn counts as %d", n)
	}
	foreign.count(l, 8, next)
	if n := waiting(); n != 2 {
		t.Errorf("two turns count as %d", n)
	}
	eventually(t, "the turns to be forgotten", func() bool {
		foreign.mu.Lock()
		defer foreign.mu.Unlock()
		return waiting() == 0 && len(foreign.list) == 0
	})
	for turn := range uint64(2 * maxForeign) {
		foreign.count(l, 100+turn, next)
	}
	if n := waiting(); n > maxForeign {
		t.Errorf("%d turns of others count", n)
	}
}
