package proxy

import (
	"sync"
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// A short turn of another proxy that waits behind a prefill of this one counts as a short turn of its own here: long prefills are taken
// back, held, or sliced for it by the very same rules, limits included.

// preemptForOthers lets a short turn of another proxy by; turn is that turn's number, and the same when it asks again; over says that
// it waits no more. It is called with a lock of the cluster held and does not block.
func (s *Server) preemptForOthers(engine string, turn uint64, over bool) gossip.Answer {
	up := s.upstreams()[engine]
	if up == nil || s.settings.Load().Lanes.Off && !over {
		return gossip.Refused
	}
	return s.foreign.count(up.lanes, turn, over, s.ids.next)
}

// foreignTurns are the short turns of other proxies that count here, each once however often it asks.
type foreignTurns struct {
	mu   sync.Mutex
	list map[foreignKey]*foreignTurn
}

type foreignKey struct {
	lanes *engineLanes
	turn  uint64
}

type foreignTurn struct {
	id     uint64      // in the lanes here
	before lane.Totals // when it came
	until  time.Time
	told   bool // that something gave way
	over   bool // kept for a while, for words of it that come late
	timer  *time.Timer
}

const (
	// foreignFor is how long a short turn of another proxy counts after its last word: several of them may be lost.
	foreignFor = time.Second
	// maxForeign bounds them. More short turns than that do not wait longer because some are not counted.
	maxForeign = 1024
)

// count makes a turn count among an engine's, for a while longer, or no more.
func (f *foreignTurns) count(l *engineLanes, turn uint64, over bool, next func() uint64) gossip.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := foreignKey{l, turn}
	x := f.list[key]
	switch {
	case x != nil && x.over, x == nil && over:
		return gossip.TooLate
	case x != nil:
		x.until = time.Now().Add(foreignFor)
		x.over = over
		return l.letBy(x)
	case len(f.list) >= maxForeign:
		return gossip.Refused
	}
	x = &foreignTurn{id: next(), until: time.Now().Add(foreignFor)}
	if !l.enterForeign(x) {
		return gossip.TooLate
	}
	if f.list == nil {
		f.list = make(map[foreignKey]*foreignTurn)
	}
	f.list[key] = x
	x.timer = time.AfterFunc(foreignFor, func() { f.expire(key, x) })
	return l.letBy(x)
}

// expire forgets a turn that has not said for a while that it still waits.
func (f *foreignTurns) expire(key foreignKey, x *foreignTurn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := time.Until(x.until); left > 0 {
		x.timer.Reset(left)
		return
	}
	delete(f.list, key)
	if !x.over {
		x.over = true
		key.lanes.letBy(x)
	}
}

// enterForeign lets a turn arrive, if there is anything long that may be in its way.
func (l *engineLanes) enterForeign(x *foreignTurn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.c.View()
	if l.closed || v.InFlight+v.Back+v.Held == 0 {
		return false
	}
	x.before = v.Totals
	l.c.Arrive(l.now(), lane.Arrival{ID: x.id, Fresh: 1, Context: 1, Shared: true})
	l.act()
	return true
}

// letBy says whether something gave way to a turn since it came, and has not been told yet: a prefill that was taken back, or what is
// held, whether it was never sent or is between two slices. One that is over leaves.
func (l *engineLanes) letBy(x *foreignTurn) gossip.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return gossip.TooLate
	}
	v := l.c.View()
	gave := v.Totals.Preempted > x.before.Preempted || v.Blocked || v.Totals.BlockedSeconds > x.before.BlockedSeconds
	if x.over {
		l.c.Leave(l.now(), x.id)
		l.act()
	}
	if gave && !x.told {
		x.told = true
		return gossip.Freed
	}
	return gossip.Refused
}
