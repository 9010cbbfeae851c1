package proxy

import (
	"sync"
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// The lanes of one proxy know nothing of the others' requests. So a proxy whose short turn would wait behind a prefill that
// another one has sent tells that one, and there it counts as a short turn of its own for a while: long prefills are taken back or
// held for it by the very same rules, limits included. It names the engine and its own turn, not a victim: which prefill is in the way,
// and whether it may be taken back, the other one knows better, and as of now. Nobody waits for the answer. A message that is lost costs
// waiting only, one that comes twice changes nothing.
const (
	foreignTurn = 300 * time.Millisecond // how long a short turn of another proxy counts: longer than a warm one takes
	askPause    = 100 * time.Millisecond // between two messages about one engine: they count for longer than that
)

// askOthers asks the proxy with the most waiting work on this request's engine to let it by, if that would take longer than a
// short turn should wait.
func (r *request) askOthers(fresh int) {
	s := r.s
	c := s.cluster.Load()
	if c == nil {
		return
	}
	member, waiting := c.Heaviest(r.up.Name)
	rate := r.charge.PrefillRate()
	if member == "" || rate <= 0 || int64(4*fresh) > waiting || float64(waiting)/rate < r.settings.Lanes.Target.Std().Seconds() {
		return
	}
	now := s.now()
	if last := r.up.askedOthers.Load(); now-last < int64(askPause) || !r.up.askedOthers.CompareAndSwap(last, now) {
		return
	}
	c.Preempt(member, r.up.Name, r.lane.id, nil)
}

// preemptForOthers lets a short turn of another proxy by; turn is that turn's number, and the same when it asks again. It is called with a
// lock of the cluster held and does not block.
func (s *Server) preemptForOthers(engine string, turn uint64) gossip.Answer {
	up := s.upstreams()[engine]
	if up == nil || s.settings.Load().Lanes.Off {
		return gossip.Refused
	}
	return s.foreign.count(up.lanes, turn, s.ids.next)
}

// foreignTurns are the short turns of other proxies that count here for a while, each once however often it asks.
type foreignTurns struct {
	mu   sync.Mutex
	list map[foreignKey]*time.Timer
}

type foreignKey struct {
	lanes *engineLanes
	turn  uint64
}

// maxForeign bounds them. More short turns than that do not wait longer because some are not counted.
const maxForeign = 1024

// count makes a turn count among an engine's for a while, or for a while longer.
func (f *foreignTurns) count(l *engineLanes, turn uint64, next func() uint64) gossip.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := foreignKey{l, turn}
	if timer := f.list[key]; timer != nil && timer.Stop() {
		timer.Reset(foreignTurn)
		return l.answerForeign(0)
	}
	if len(f.list) >= maxForeign {
		return gossip.Refused
	}
	id := next()
	answer := l.answerForeign(id)
	if answer == gossip.TooLate {
		return answer
	}
	if f.list == nil {
		f.list = make(map[foreignKey]*time.Timer)
	}
	var timer *time.Timer
	timer = time.AfterFunc(foreignTurn, func() {
		f.mu.Lock()
		if f.list[key] == timer {
			delete(f.list, key)
		}
		f.mu.Unlock()
		l.leaveForeign(id)
	})
	f.list[key] = timer
	return answer
}

// answerForeign lets a turn arrive, for id 0 none, and says what that did to the long prefills.
func (l *engineLanes) answerForeign(id uint64) gossip.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.c.View()
	if l.closed || v.InFlight == 0 {
		return gossip.TooLate
	}
	if id != 0 {
		l.c.Arrive(l.now(), lane.Arrival{ID: id, Fresh: 1, Context: 1})
		l.act()
	}
	if after := l.c.View(); after.Totals.Ordered > v.Totals.Ordered || after.Preempting > 0 {
		return gossip.Freed
	}
	return gossip.Refused
}

func (l *engineLanes) leaveForeign(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.c.Leave(l.now(), id)
		l.act()
	}
}
