package proxy

import (
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// The lanes of one proxy know nothing of the others' requests. So a proxy whose short turn would wait behind a prefill that
// another one has sent tells that one, and there it counts as a short turn of its own for a while: long prefills are taken back or
// held for it by the very same rules, limits included. Nobody waits for the answer. A message that is lost costs waiting only.
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
	c.Preempt(member, r.up.Name, 0, nil)
}

// preemptForOthers lets a short turn of another proxy by. It is called with a lock of the cluster held and does not block.
func (s *Server) preemptForOthers(engine string, _ uint64) gossip.Answer {
	up := s.upstreams()[engine]
	if up == nil || s.settings.Load().Lanes.Off {
		return gossip.Refused
	}
	return up.lanes.foreign(s.ids.next())
}

// foreign makes a short turn of another proxy count for a while.
func (l *engineLanes) foreign(id uint64) gossip.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return gossip.Refused
	}
	v := l.c.View()
	if v.InFlight == 0 {
		return gossip.TooLate
	}
	l.c.Arrive(l.now(), lane.Arrival{ID: id, Fresh: 1, Context: 1})
	l.act()
	time.AfterFunc(foreignTurn, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			l.c.Leave(l.now(), id)
			l.act()
		}
	})
	if after := l.c.View(); after.Totals.Ordered > v.Totals.Ordered || after.Preempting > 0 {
		return gossip.Freed
	}
	return gossip.Refused
}
