package proxy

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/prompt"
)

// lanePart is what a request needs for its lane. Preempting and committing race
// for flight: exactly one of them wins.
//
//	inProxy ──admit──▶ inEngine ──first token──▶ committed
//	   ▲                  │
//	   └── sent back ── taken ◀──preempt
type lanePart struct {
	id        uint64 // in the lanes of its engine; 0 = in none
	lanes     *engineLanes
	flight    atomic.Int32
	wake      chan wake
	over      chan struct{} // told when an exchange has ended
	back      bool          // the exchange ended because the request was taken back
	sentAt    time.Time
	preempted int
	done      int // fresh tokens computed before preemptions, estimated
	status    lane.Status
}

const (
	inProxy   int32 = iota
	inEngine        // sent, or about to be
	taken           // a preemption has taken it back; the cancel is under way
	committed       // its answer belongs to the client
)

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
	defer func() { r.waited += time.Since(began) }()
	select {
	case w := <-r.lane.wake:
		return w
	case <-r.gone:
		return wakeGone
	case <-r.s.stopping:
		return wakeStop
	}
}

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
	p.done = 0 // another engine has computed nothing of it
	if !r.route.Generation || r.settings.Lanes.Off {
		return laneGo
	}
	p.flight.Store(inProxy)
	select {
	case <-p.wake: // a word from an earlier engine
	default:
	}
	d := &r.decision
	p.id, p.lanes = r.s.ids.next(), r.up.lanes
	arrival := lane.Arrival{ID: p.id, Tenant: r.tenant, Fresh: max(d.Prompt-d.Warm, 0), Context: d.Prompt, Unstreamed: !r.stream}
	switch p.lanes.arrive(r, arrival, r.laneFacts()) {
	case lane.Go:
		r.askOthers(arrival.Fresh)
		return laneGo
	case lane.Full:
		p.id = 0
		r.refuse(fasthttp.StatusTooManyRequests, "long_queue_full", "too many long prompts are waiting for this model; try again later")
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
		r.refuse(fasthttp.StatusTooManyRequests, "held_too_long", "this long prompt was held for lanes.max_wait without a free place; try again later")
		return laneEnded
	}
	r.refuse(fasthttp.StatusServiceUnavailable, "shutting_down", "warmring is shutting down")
	return laneEnded
}

func (r *request) releaseUnsent() {
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
}

// laneFacts is what is known of the placed engine's speed and ways to stop.
func (r *request) laneFacts() lane.Facts {
	up := r.up
	f := lane.Facts{PrefillRate: r.charge.PrefillRate(), CanPreempt: up.canPreempt(), Kept: up.kept.share(time.Now()), KeepsStep: up.DetectedKind() == engines.VLLM || up.llamaCPP(), UnseenAborts: up.llamaCPP(), FreezesDecodes: up.DetectedKind() == engines.SGLang}
	if up.DetectedKind() == engines.SGLang && r.scratch.prompt.Open == 0 {
		f.CanPreempt = false // no place for the id by which it could be stopped at once
	}
	return f
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
// of a preemption wins, unless it is what an engine says to an abort.
func (r *request) commitWhole(body []byte) bool {
	if r.commit() {
		return true
	}
	if r.up.DetectedKind() == engines.SGLang && (r.route.Family == prompt.Messages || r.route.Family == prompt.Responses || bytes.Contains(body, []byte(`"abort"`))) {
		return false
	}
	r.lane.flight.Store(committed)
	return true
}

// tookBack notes that the exchange ended because the request was taken back.
func (r *request) tookBack() (again bool) {
	r.x.Close()
	r.lane.back = true
	return true
}

// sendAgain waits for a preempted request's turn and sends it to the same engine
// once more: what it has computed is still cached there.
func (r *request) sendAgain() (again bool) {
	p := &r.lane
	p.back = false
	r.aborts.wait() // never two copies at once
	ran := time.Since(p.sentAt)
	p.preempted++
	r.s.metrics.preempted.Inc()
	p.flight.Store(inProxy)
	fresh := max(r.decision.Prompt-r.decision.Warm-p.done, 0)
	done := min(int(ran.Seconds()*r.charge.PrefillRate()), fresh)
	p.done += done
	p.lanes.preempted(p.id, -1) // the controller knows when the run began and what an abort loses
	switch r.held() {
	case laneEnded:
		return false
	case laneMoved:
		return true
	}
	return r.exchange()
}

// prefilled tells that the engine has computed the prompt.
func (r *request) prefilled() {
	if r.charge != nil {
		r.charge.FirstToken(r.s.now())
	}
	if p := &r.lane; p.id != 0 {
		p.lanes.firstToken(p.id)
	}
}

// leaveLane ends the request's part in its engine's lanes.
func (r *request) leaveLane() {
	p := &r.lane
	if p.id == 0 {
		return
	}
	p.status = p.lanes.leave(p.id)
	p.id = 0
}

// canPreempt tells whether the engine stops at once when told and keeps what it
// has computed: the operator's word, else what is known of its kind.
func (up *upstream) canPreempt() bool {
	switch up.preempt {
	case "yes":
		return true
	case "no":
		return false
	}
	switch up.DetectedKind() {
	case engines.VLLM:
		return true
	case engines.SGLang:
		return !up.noAbort.Load()
	}
	// llama.cpp looks for closed connections once a second and stops only between batches, which take seconds on a slow
	// machine. Nothing tells when it has; a request that is sent again too soon would live twice. So it is held back only.
	return false
}

// llamaCPP tells whether the engine is a llama.cpp server, which stops between two batches and keeps all of them.
func (up *upstream) llamaCPP() bool { return strings.HasPrefix(up.Facts().Version, "llama.cpp") }

// keptShare learns which share of the computed prefix an engine still has when a
// preempted request comes back. A low share ends preemption, and without
// preemption there are no samples: so few of them say nothing, and old ones are
// forgotten, so that a bad moment is not the last word.
type keptShare struct {
	mu      sync.Mutex
	mean    float64
	samples int
	last    time.Time
}

const (
	fewKept = 3
	oldKept = 10 * time.Minute
)

// learn takes one answer of a preempted request.
func (k *keptShare) learn(found, computed int, now time.Time) {
	if computed < 1024 {
		return // block sizes and estimates would outweigh it
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.samples++
	k.last = now
	share := min(max(float64(found)/float64(computed), 0.01), 1)
	k.mean += (share - k.mean) * max(1/float64(k.samples), 0.2)
}

// share is the mean, 0 while unknown.
func (k *keptShare) share(now time.Time) float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.samples > 0 && now.Sub(k.last) > oldKept {
		k.samples, k.mean = 0, 0
	}
	if k.samples < fewKept {
		return 0
	}
	return k.mean
}

// forget drops what was learned: the engine is another process now.
func (k *keptShare) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.samples, k.mean = 0, 0
}
