package proxy

import "time"

// wake is what a held request is told.
type wake uint8

const (
	wakeAdmit  wake = iota + 1
	wakeExpire      // held for too long
	wakeMove        // its engine is gone or draining
	wakeGone        // its client left
	wakeStop        // the proxy stops
)

// wakeUp tells a held request what came of it. It does not block; a request that
// has a word waiting needs no second one.
func (r *request) wakeUp(w wake) {
	select {
	case r.lane.wake <- w:
	default:
	}
}

// await blocks a held request until something becomes of it.
func (r *request) await() wake {
	began := time.Now()
	defer func() {
		held := time.Since(began)
		r.waited += held
		r.lane.heldFor += held
	}()
	select {
	case w := <-r.lane.wake:
		return w
	case <-r.gone:
		return wakeGone
	case <-r.s.stopping:
		return wakeStop
	}
}
