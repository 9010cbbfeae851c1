package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// liveRequests is the list of requests under way: counted for the drain, and
// canceled together when its limit passes.
type liveRequests struct {
	mu    sync.Mutex
	first *request
	n     int
	idle  chan struct{} // closed when n falls to 0; nil when nobody waits
}

func (l *liveRequests) add(r *request) {
	l.mu.Lock()
	r.next, r.prev = l.first, nil
	if l.first != nil {
		l.first.prev = r
	}
	l.first = r
	l.n++
	l.mu.Unlock()
}

func (l *liveRequests) remove(r *request) {
	l.mu.Lock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	l.n--
	if l.n == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	l.mu.Unlock()
}

func (l *liveRequests) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// empty is closed once no request is under way.
func (l *liveRequests) empty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// lastWrite is how long a client may take for its last bytes when all are cut.
const lastWrite = time.Second

// cancelAll stops every exchange under way, and lets no client that does not read
// hold up the end.
func (l *liveRequests) cancelAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Now().Add(lastWrite)
	for r := l.first; r != nil; r = r.next {
		r.stop()
		if r.conn != nil {
			_ = r.conn.SetWriteDeadline(deadline)
		}
	}
}

// pending counts what still refers to a request in the background.
type pending struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil when nobody waits
}

func (p *pending) begin() {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
}

func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

func (p *pending) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n > 0
}

// wait returns when nothing is pending.
func (p *pending) wait() {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	<-idle
}

// changes tells those who wait that something about the engines has changed.
type changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next change after this call.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

func (c *changes) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}

// waiters counts the requests that wait for an engine, within a bound.
type waiters struct {
	n    atomic.Int64
	shed atomic.Uint64
}

func (w *waiters) enter(limit int) bool {
	if w.n.Add(1) > int64(limit) {
		w.n.Add(-1)
		w.shed.Add(1)
		return false
	}
	return true
}

func (w *waiters) leave() { w.n.Add(-1) }
