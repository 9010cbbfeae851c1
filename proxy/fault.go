package proxy

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmring/warmring/engines"
)

// tellFault reports what the engine did to this request together with what may be
// the request's own part in it: its session, as the client names it and as it was
// recognized, and its prompt. A prompt that every engine fails on must not take the
// engines away from everybody else.
func (r *request) tellFault(now time.Time, ev engines.Event) {
	work := r.promptKey
	if work == 0 && len(r.body) > 0 {
		work = xxhash.Sum64(r.body) // nothing that is generated from: the body is the work
	}
	r.up.ReportFailure(now, ev, r.identity.Session, r.decision.Session, work)
}
