package proxy

import "time"

// A session's next turn may reach another proxy before the news of where it was placed does. One whose session is unknown there
// waits a moment: it is little beside the prefill of a whole history, which a wrong place would cost.
const (
	newsWait = 120 * time.Millisecond // news that was lost on the straight way comes by gossip within two rounds
	newsLook = 2 * time.Millisecond
)

// awaitNews lets the news of this turn's session arrive, if there are other proxies that may have sent some. Known sessions and
// first turns pass at once.
func (r *request) awaitNews() {
	s, t := r.s, &r.scratch.turn
	c := s.cluster.Load()
	if c == nil || !c.HasMembers() || !s.placer.Missing(t) {
		return
	}
	s.metrics.newsAwaited.Inc()
	timer := time.NewTimer(newsLook)
	defer timer.Stop()
	for began := time.Now(); time.Since(began) < newsWait; {
		select {
		case <-timer.C:
		case <-s.stopping:
			return
		}
		if !s.placer.Missing(t) {
			s.metrics.newsArrived.Inc()
			return
		}
		timer.Reset(newsLook)
	}
}
