package proxy

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
)

// lanePart is what a request needs for its lane. Preempting and committing race
// for flight: exactly one of them wins. So do preempting and the end of a slice,
// see slice.go.
//
//	inProxy ──admit──▶ inEngine ──first token──▶ committed
//	   ▲ ▲                │ │
//	   │ └── slice ended ─┘ │
//	   └── sent back ──── taken ◀──preempt
type lanePart struct {
	id      uint64 // in the lanes of its engine; 0 = in none
	lanes   *engineLanes
	flight  atomic.Int32
	wake    chan wake
	over    chan struct{} // told when an exchange has ended
	plea    *plea         // to other proxies, whose prefills are in its way
	ordered atomic.Bool   // the engine was told to abort what is under way
	back    comeback      // why the last exchange brought no answer
	result  lane.Slice    // of the slice that has ended
	took    time.Duration // by it
	fresh   int           // tokens that it has computed, estimated where the engine does not say
	whole   bool          // no more slices of it, on any engine
	broke   bool          // an engine closed without an answer to a slice of it: it may have died of it
	avoids  bool          // the last engine of scratch.exclude is there for a slice only

	// Written with the lanes' lock held, before the request is woken.
	tokens   int         // what was admitted: a slice of so many tokens of the prompt; 0 = the request itself
	reason   lane.Reason // why
	admitted bool        // after it was held
	running  bool        // it counts as in prefill
	alone    bool        // when it was let go nothing else was in prefill there
	nth      uint64      // to be let go

	sentAt     time.Time
	heldFor    time.Duration // in lanes, of all engines
	preempted  int
	slices     int // that ended
	sliceNo    int // that were sent, or tried to
	sliceBytes int // sent in slices
	had        int // tokens of the prompt that the engine has from before or by slices, as it counts them where it does
	sure       int // the same in our own estimate
	done       int // computed since by runs that were taken back, estimated
	base       int // tokens that the engine had before the first run, in its own count as far as it is known
	own        int // tokens that slices of this request have computed there, in the same
	status     lane.Status
}

const (
	inProxy   int32 = iota
	inEngine        // sent, or about to be
	taken           // a preemption has taken it back; the cancel is under way
	committed       // its answer belongs to the client
)

// comeback is why a request is in the proxy again without an answer and without
// a failure.
type comeback uint8

const (
	stayed        comeback = iota
	byAbort                // it was taken back
	bySlice                // only a slice of it was sent, which has ended
	bySliceBroken          // the same, without an answer: it is to be placed anew
)

// laneOutcome is what came of asking for admission.
type laneOutcome uint8

const (
	laneGo    laneOutcome = iota
	laneMoved             // its engine went away meanwhile: place it anew
	laneEnded             // answered, or its client left
)

// enterLane asks the placed engine's lanes for admission and waits for it.
func (r *request) enterLane() laneOutcome {
	p := &r.lane
	p.flight.Store(inEngine)
	p.sentAt = time.Now()
	p.tokens, p.had, p.sure, p.done = 0, r.decision.Warm, r.decision.Warm, 0 // another engine has computed nothing of it
	p.base, p.own = r.decision.Warm, 0
	if !r.route.Generation || r.settings.Lanes.Off {
		return laneGo
	}
	p.flight.Store(inProxy)
	select {
	case <-p.wake: // a word from an earlier engine
	default:
	}
	p.id, p.lanes = r.s.ids.next(), r.up.lanes
	arrival := r.arrival()
	above, waiters := r.others(&arrival)
	switch p.lanes.arrive(r, arrival, r.laneFacts()) {
	case lane.Go:
		r.askOthers(above, waiters)
		return laneGo
	case lane.Crowded:
		p.id = 0
		r.refuse(fasthttp.StatusTooManyRequests, "short_queue_full", "too many short requests await their first token from this model's engine; try again later")
		return laneEnded
	case lane.Full:
		p.id = 0
		r.refuseHeld("long_queue_full", "too many long prompts are waiting for this model; try again later")
		return laneEnded
	}
	return r.held()
}

// held waits for a held request's admission.
func (r *request) held() laneOutcome {
	switch r.await() {
	case wakeAdmit:
		r.charge.Restart(r.s.now())
		r.lane.sentAt = time.Now()
		return laneGo
	case wakeMove:
		r.releaseUnsent()
		return laneMoved
	case wakeGone:
		r.releaseUnsent()
		r.left()
		return laneEnded
	case wakeExpire:
		r.refuseHeld("held_too_long", "this long prompt was held for lanes.max_wait without a free place; try again later")
		return laneEnded
	}
	r.refuse(fasthttp.StatusServiceUnavailable, "shutting_down", "warmring is shutting down")
	return laneEnded
}

// refuseHeld refuses a request for which there is no place, until about the time
// at which there is one, and up to half as long again: hundreds may be refused at
// once, and should not all come back at once.
func (r *request) refuseHeld(code, message string) {
	r.comeBack = r.lane.lanes.retryAfter()
	r.comeBack += rand.N(r.comeBack/2 + time.Second)
	r.refuse(fasthttp.StatusTooManyRequests, code, message)
}

func (r *request) releaseUnsent() {
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
}

// inLane sends the request to the engine that admitted it, as often as its lane
// wants: in slices, and again after it was taken back; what it has computed is
// cached there. laneGo says that it has failed there and another engine may be
// tried, laneMoved that it has not: its engine went away meanwhile, or failed a
// slice of it.
func (r *request) inLane() laneOutcome {
	p := &r.lane
	for {
		p.back = stayed
		switch again := r.exchange(); {
		case !again:
			return laneEnded
		case p.back == stayed:
			return laneGo
		case p.back == bySliceBroken:
			return laneMoved
		}
		r.aborts.wait() // never two copies at once
		p.flight.Store(inProxy)
		if p.back == bySlice {
			if p.lanes.sliced(p.id, p.result) && !p.result.Failed {
				r.charge.Computed(p.fresh, int64(p.took))
			}
		} else {
			r.countPreemption()
			p.lanes.preempted(p.id, -1) // the controller knows when the run began and what an abort loses
		}
		if came := r.held(); came != laneGo {
			return came
		}
	}
}

// countPreemption notes what a run that was taken back has probably computed.
func (r *request) countPreemption() {
	p := &r.lane
	p.preempted++
	r.s.metrics.preempted.Inc()
	all := r.decision.Prompt
	if p.tokens > 0 {
		all = p.tokens
	}
	ran := time.Since(p.sentAt)
	p.done += min(int(ran.Seconds()*r.charge.PrefillRate()), max(all-p.sure-p.done, 0))
	r.charge.Progress(r.s.now(), p.sure+p.done)
}

// preempt takes the request back from its engine unless its answer has begun. It
// is called with the lanes' lock held and does not block.
func (r *request) preempt() {
	if !r.lane.flight.CompareAndSwap(inEngine, taken) {
		return // the answer won: the controller hears of its first token next
	}
	r.takeBack()
}

// commit claims the answer for the client. It returns false if a preemption has
// taken the request back before: then the answer goes nowhere.
func (r *request) commit() bool {
	return r.lane.flight.CompareAndSwap(inEngine, committed)
}

// commitWhole claims a complete answer. One that is complete in the very moment
// of a preemption wins, unless it is what an engine made of an abort.
func (r *request) commitWhole(answer []byte) bool {
	if r.commit() {
		return true
	}
	if r.up.DetectedKind() == engines.SGLang && r.x.Answer.Status < 300 && r.lane.ordered.Load() && r.endedBy(answer) != wire.EndedWhole {
		return false
	}
	r.lane.flight.Store(committed)
	return true
}

// endedBy reads how a complete answer of an engine that was told to abort ended.
func (r *request) endedBy(answer []byte) wire.Ending {
	if isEvents(r.x.Answer.ContentType) || !r.x.Answer.Identity() {
		return wire.EndedUnclear // a stream for a client of HTTP/1.0: rare enough to be sent again
	}
	return wire.EndingOf(r.route.Family, answer)
}

// tookBack notes that the exchange ended because the request was taken back.
func (r *request) tookBack() (again bool) {
	r.x.Close()
	r.lane.back = byAbort
	return true
}

// prefilled tells that the engine has computed the prompt.
func (r *request) prefilled() {
	if r.charge != nil {
		r.charge.FirstToken(r.s.now())
	}
	if p := &r.lane; p.id != 0 {
		r.stopAsking()
		p.lanes.firstToken(p.id)
	}
}

// leaveLane ends the request's part in its engine's lanes.
func (r *request) leaveLane() {
	p := &r.lane
	if p.id == 0 {
		return
	}
	r.stopAsking()
	p.status = p.lanes.leave(p.id)
	p.id = 0
}

// learnKept compares an answer's cached tokens with what runs before it have
// computed: earlier slices are known to, runs that were taken back probably did.
func (r *request) learnKept(cached int) {
	p := &r.lane
	if p.done > 0 && cached >= 0 {
		r.up.kept.learn(cached-p.had, p.done, time.Now())
	}
}
