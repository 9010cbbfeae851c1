package lane

// none is no index.
const none = ^uint32(0)

// state is where a request is.
//
//	            ┌────────────── Preempted, Sliced ───────────┐
//	            │   ┌─ Sliced ─┐                             │
//	            ▼   ▼          │                             │
//	Arrive ─▶ held ──Admit──▶ prefilling ──Preempt──▶ preempting
//	  │                         ▲   │                       │
//	  └───────── Go ────────────┘   └──FirstToken──▶ decoding ◀─ Committed (or FirstToken)
//
// Leave ends it anywhere; Expire ends it while held before it was first sent.
type state uint8

const (
	free       state = iota
	held             // in the proxy; long only
	prefilling       // sent, its first token is awaited
	preempting       // the same, and an abort was ordered
	decoding         // committed: it concerns the lanes no more
)

// String is the state in lower case.
func (s state) String() string {
	return [...]string{"free", "held", "prefilling", "preempting", "decoding"}[s]
}

// request is one request from Arrive to Leave.
type request struct {
	id, tenant uint64
	state      state
	class      Class
	unstreamed bool
	immune     bool
	returned   bool // it was sent before and is back: in front of the queue
	passer     bool // it went before one that was back, and does so again when it comes back itself
	noPreempt  bool
	noSlices   bool
	alone      bool // interactive: nothing else was in its way when it was sent
	shared     bool // interactive: others' work may have been in its way
	stretch    uint8
	preempted  int32 // times taken back
	passedBy   int64 // ns of prefill of those that passed it between two slices

	total, context int   // fresh tokens at arrival; of the whole prompt
	fresh          int   // of these, still to be computed when it was last sent or taken back
	arrived        int64 // ns
	heldFor        int64 // ns held in all, up to the last admission
	since          int64 // while held: since when
	sent           int64 // last time
	seq            uint64
	began          int64 // when the engine is believed to have begun it, at or after sent
	leg            int64 // estimated ns of prefill from then on
	ran            int64 // ns of earlier runs, less what aborts threw away
	ordered        int64 // abort
	ready          int64 // after an abort that does not show: when it has taken effect at the latest
	extra, bound   int64 // ns of delay because of interactive requests: so far, and at most

	// While prefilling, of a long one: the first interactive request still waiting that was sent after it, by stream kind;
	// and one that was served beside it.
	behind   [2]uint32
	besideAt int64
	beside   int64
	trial    int64 // when its preemption is due in this run; 0 = not considered yet

	slicing slicing
	bytes   int64 // of its body

	// Links of an interactive request without its first token, or of a long one that was never sent yet, by arrival.
	prev, next uint32
	order      int64  // in its tenant's queue
	slot       uint32 // of the tenant
	at         uint32 // in the tenant's heap
}

// orderNow is its place among long ones: by arrival and remaining work. What it still has to do only shrinks.
func (r *request) orderNow(e *engine) int64 { return r.arrived + patience*e.left(r) }

// remaining is the estimated ns of prefill left.
func (r *request) remaining(now int64, e *engine) int64 {
	ran := now - r.began
	if ran < r.leg {
		return max(r.leg-ran, r.leg/16)
	}
	return e.overrun(r.ran + ran)
}

// list is a doubly linked list of requests, in the order of their arrival.
type list struct {
	first, last uint32
	n           int
}

func (l *list) push(all []request, i uint32) {
	r := &all[i]
	r.prev, r.next = l.last, none
	if l.n == 0 {
		l.first = i
	} else {
		all[l.last].next = i
	}
	l.last = i
	l.n++
}

func (l *list) remove(all []request, i uint32) {
	r := &all[i]
	if r.prev == none {
		l.first = r.next
	} else {
		all[r.prev].next = r.next
	}
	if r.next == none {
		l.last = r.prev
	} else {
		all[r.next].prev = r.prev
	}
	r.prev, r.next = none, none
	l.n--
}

func newList() list { return list{first: none, last: none} }
