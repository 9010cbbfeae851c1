package proxy

import "time"

// A session's next turn may reach another proxy before the news of where it was placed does. One whose session is unknown there
// waits a moment. In a wrong place it would not only prefill its history once more: without an id it would be a session of its own
// there, with turns in both places from then on. So the wait does not go by what the prefill costs.
const (
	newsWait  = 120 * time.Millisecond // news that was lost on the straight way comes by gossip within two rounds
	newsLook  = 2 * time.Millisecond
	newsWorth = 1024 // tokens: fewer are few-shot examples rather than a session's history, and soon computed
)

// awaitNews lets the news of this turn's session arrive, if there are other proxies at work that may have sent some. Known sessions,
// first turns and short ones pass at once.
func (r *request) awaitNews() {
	s, t := r.s, &r.scratch.turn
	c := s.cluster.Load()
	if c == nil || !c.HasMembers() || c.IsQuiet() {
		return
	}
	if s.placer.Cold(t) < newsWorth || !s.placer.Missing(t) {
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
