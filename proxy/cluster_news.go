package proxy

import "time"

// A session's next turn may reach another proxy before the news of where it was placed does. One whose session is unknown there
// waits a moment, where that is little beside the prefill of a whole history, which a wrong place would cost.
const (
	newsWait  = 120 * time.Millisecond // news that was lost on the straight way comes by gossip within two rounds
	newsLook  = 2 * time.Millisecond
	newsShare = 4    // at most one in so many parts of the prefill: most of what is unknown comes from nowhere, and has waited in vain
	newsWorth = 4096 // tokens: fewer are not worth any wait
)

// awaitNews lets the news of this turn's session arrive, if there are other proxies at work that may have sent some. Known sessions,
// first turns and short ones pass at once.
func (r *request) awaitNews() {
	s, t := r.s, &r.scratch.turn
	c := s.cluster.Load()
	if c == nil || !c.HasMembers() || c.IsQuiet() {
		return
	}
	wait := worthWaiting(s.placer.Cold(t))
	if wait == 0 || !s.placer.Missing(t) {
		return
	}
	s.metrics.newsAwaited.Inc()
	timer := time.NewTimer(newsLook)
	defer timer.Stop()
	for began := time.Now(); time.Since(began) < wait; {
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

// worthWaiting is how long news is waited for by a turn that costs so much where nothing of it is warm.
func worthWaiting(tokens int, prefill time.Duration) time.Duration {
	if tokens < newsWorth || prefill <= newsWait {
		return 0
	}
	return min(newsWait, prefill/newsShare)
}
