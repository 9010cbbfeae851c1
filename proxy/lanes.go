package proxy

import (
	"sync"
	"time"

	"github.com/warmring/warmring/proxy/lane"
)

// engineLanes is one engine's lane controller with what it needs of the world: a
// clock, a timer and the requests to wake. Calls are short and never block; the
// controller decides, this type only carries its words.
type engineLanes struct {
	now func() int64

	mu      sync.Mutex
	c       *lane.Controller
	members map[uint64]*request // held or in prefill
	timer   *time.Timer
	armed   int64 // when the timer fires; 0 = not armed
	due     []lane.Action
	closed  bool

	sent    uint64 // requests, slices and runs that were let go to the engine
	running int    // of these, in prefill as far as is known; one that is not streamed, until its end
}

func newEngineLanes(opt lane.Options, now func() int64) *engineLanes {
	return &engineLanes{now: now, c: lane.New(opt), members: make(map[uint64]*request)}
}

// arrive asks for a request's admission. After Held the request's wake channel
// tells what came of it.
func (l *engineLanes) arrive(r *request, a lane.Arrival, f lane.Facts) lane.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.SetFacts(f)
	v := l.c.Arrive(l.now(), a)
	if v != lane.Full && v != lane.Crowded {
		l.members[a.ID] = r
	}
	if v == lane.Go {
		r.lane.flight.Store(inEngine)
		l.begins(r)
	}
	l.act()
	return v
}

// begins notes that a request goes to the engine.
func (l *engineLanes) begins(r *request) {
	l.sent++
	l.running++
	r.lane.running, r.lane.nth, r.lane.alone = true, l.sent, l.running == 1
}

// ends notes that a request is in prefill no more. It tells whether nothing else was, in all that time.
func (l *engineLanes) ends(id uint64) (alone bool) {
	r := l.members[id]
	if r == nil || !r.lane.running {
		return false
	}
	l.running--
	r.lane.running = false
	return r.lane.alone && r.lane.nth == l.sent
}

// retryAfter is when a long request that was refused may find a place.
func (l *engineLanes) retryAfter() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.RetryAfter(l.now())
}

// forget drops what was learned of the engine: it is another process now.
func (l *engineLanes) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.Forget()
}

// evict tells all held requests to look for another engine.
func (l *engineLanes) evict() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.c.HeldIDs(nil) {
		if r := l.members[id]; r != nil {
			r.wakeUp(wakeMove)
		}
	}
}

// setOptions changes the rules for all that is held and in flight.
func (l *engineLanes) setOptions(opt lane.Options) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.c.SetOptions(l.now(), opt)
	l.act()
}

// retire ends the lanes of an engine that was taken out: what is held looks for another one, what was placed here before
// passes.
func (l *engineLanes) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.c.HeldIDs(nil) {
		l.move(id)
	}
	l.c.SetOptions(l.now(), lane.Options{Off: true})
	l.act()
	l.end()
}

// move has a held request look for another engine, whatever the controller says of it from now on.
func (l *engineLanes) move(id uint64) {
	if r := l.members[id]; r != nil {
		delete(l.members, id)
		r.wakeUp(wakeMove)
	}
}

// firstToken tells that a request's prefill is over.
func (l *engineLanes) firstToken(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends(id)
	delete(l.members, id)
	l.c.FirstToken(l.now(), id)
	l.act()
}

// preempted tells that a request is back in the proxy and that the engine has
// computed about done of its fresh tokens, over all its runs; negative = unknown.
func (l *engineLanes) preempted(id uint64, done int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends(id)
	if l.closed {
		l.move(id)
	}
	l.c.Preempted(l.now(), id, done)
	l.act()
}

// sliced tells that a slice has ended and the request is back in the proxy. It answers whether nothing else was in prefill
// meanwhile.
func (l *engineLanes) sliced(id uint64, s lane.Slice) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	alone = l.ends(id)
	if l.closed {
		l.move(id)
	}
	l.c.Sliced(l.now(), id, s)
	l.act()
	return alone
}

// leave ends a request's part in the lanes, at any stage, and tells what became
// of it there.
func (l *engineLanes) leave(id uint64) lane.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends(id)
	delete(l.members, id)
	now := l.now()
	status, _ := l.c.Status(now, id)
	l.c.Leave(now, id)
	l.act()
	return status
}

// act carries out what the controller wants and sets the timer for its next wish.
// The lock is held: nothing here blocks or calls back.
func (l *engineLanes) act() {
	l.due = l.c.Actions(l.due[:0])
	for _, a := range l.due {
		r := l.members[a.ID]
		if r == nil {
			continue
		}
		switch a.Kind {
		case lane.Admit:
			// From here on it can be taken back, before its goroutine has sent it too.
			r.lane.flight.Store(inEngine)
			r.lane.tokens, r.lane.reason, r.lane.admitted = a.Tokens, a.Reason, true
			l.begins(r)
			r.wakeUp(wakeAdmit)
		case lane.Expire:
			delete(l.members, a.ID)
			r.wakeUp(wakeExpire)
		case lane.Preempt:
			r.preempt()
		}
	}
	at, wanted := l.c.Next()
	if !wanted || l.closed {
		return
	}
	if l.armed != 0 && l.armed <= at {
		return // it fires early enough and asks again
	}
	l.armed = at
	wait := max(time.Duration(at-l.now()), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.timer.Reset(wait)
	}
}

func (l *engineLanes) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = 0
	if l.closed {
		return
	}
	l.c.Tick(l.now())
	l.act()
}

func (l *engineLanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *engineLanes) end() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *engineLanes) view() lane.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.View()
}
