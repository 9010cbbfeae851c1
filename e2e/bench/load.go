package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// load is one closed-loop run: conns connections, each sends its next turn when the answer to the one before is there.
type load struct {
	address string
	body    string // a key of shapes
	stream  bool
	headers bool // the session id travels in headers
	conns   int
	total   int           // requests
	limit   time.Duration // no request begins after it
	once    bool          // each session takes its turns exactly once; total is ignored
}

// outcome is what came of a run.
type outcome struct {
	good, errors int
	firstError   string
	took         time.Duration
	latencies    []time.Duration // sorted; of good answers
	firsts       []time.Duration // sorted; to the first byte of a body
	visits       map[string][]visit
}

// visit is one good turn: who answered it, and how long its body was.
type visit struct{ engine, bytes int }

// sessionHeaders are the names under which the various peers look for a session's id.
var sessionHeaders = []string{"x-session-id", "X-SMG-Routing-Key", "x-litellm-session-id"}

// sets keeps conversations, which are dear to make.
type sets struct {
	mu   sync.Mutex
	made map[string]*talkSet
}

type talkSet struct {
	talks []conversation
	tail  []byte
}

func (s *sets) get(name string, stream bool) *talkSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := name + strconv.FormatBool(stream)
	if s.made == nil {
		s.made = make(map[string]*talkSet)
	}
	if s.made[key] == nil {
		t := &talkSet{}
		t.talks, t.tail = conversations(name, stream)
		s.made[key] = t
	}
	return s.made[key]
}

// requestHead writes the head of a turn.
func requestHead(dst []byte, address, session string, headers bool, length int) []byte {
	dst = append(dst, "POST /v1/chat/completions HTTP/1.1\r\nHost: "+address+"\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer sk-bench\r\n"...)
	if headers {
		for _, name := range sessionHeaders {
			dst = append(dst, name+": "+session+"\r\n"...)
		}
	}
	return append(strconv.AppendInt(append(dst, "Content-Length: "...), int64(length), 10), "\r\n\r\n"...)
}

// run drives the load to its end.
func (l *load) run(s *sets) outcome {
	set := s.get(l.body, l.stream)
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		left atomic.Int64
	)
	out := outcome{visits: make(map[string][]visit)}
	left.Store(int64(l.total))
	began := time.Now()
	end := began.Add(l.limit)
	for w := range l.conns {
		wg.Go(func() {
			worker := loadWorker{load: l, set: set, index: w}
			worker.run(&left, end)
			mu.Lock()
			defer mu.Unlock()
			out.add(&worker.out)
		})
	}
	wg.Wait()
	out.took = time.Since(began)
	slices.Sort(out.latencies)
	slices.Sort(out.firsts)
	return out
}

func (o *outcome) add(w *outcome) {
	o.good += w.good
	o.errors += w.errors
	if o.firstError == "" {
		o.firstError = w.firstError
	}
	o.latencies = append(o.latencies, w.latencies...)
	o.firsts = append(o.firsts, w.firsts...)
	for session, visits := range w.visits {
		o.visits[session] = append(o.visits[session], visits...)
	}
}

// loadWorker is one connection with the sessions that are its own, so that a session's turns come one after the other.
type loadWorker struct {
	*load
	set   *talkSet
	index int
	conn  *caller
	head  []byte
	out   outcome
}

func (w *loadWorker) run(left *atomic.Int64, end time.Time) {
	var mine []*conversation
	for i := w.index; i < len(w.set.talks); i += w.conns {
		mine = append(mine, &w.set.talks[i])
	}
	if len(mine) == 0 {
		mine = append(mine, &w.set.talks[w.index%len(w.set.talks)])
	}
	w.out.visits = make(map[string][]visit)
	defer func() {
		if w.conn != nil {
			w.conn.Close()
		}
	}()
	for i := 0; time.Now().Before(end); i++ {
		if w.once && i == len(mine)*turns || !w.once && left.Add(-1) < 0 {
			return
		}
		if err := w.turn(mine[i%len(mine)], i/len(mine)%turns); err != nil {
			w.out.errors++
			if w.out.firstError == "" {
				w.out.firstError = err.Error()
			}
			if w.conn != nil {
				w.conn.Close()
				w.conn = nil
			} else {
				time.Sleep(20 * time.Millisecond) // nobody listens
			}
		}
	}
}

func (w *loadWorker) turn(c *conversation, n int) error {
	if w.conn == nil {
		conn, err := call(w.address)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	size := c.ends[n] + len(w.set.tail)
	w.head = requestHead(w.head[:0], w.address, c.id, w.headers, size)
	began := time.Now()
	a, err := w.conn.ask(w.head, c.text[:c.ends[n]], w.set.tail)
	took := time.Since(began)
	switch {
	case err != nil:
		return err
	case a.status != 200 || w.stream && !a.done:
		return fmt.Errorf("status %d, done %v", a.status, a.done)
	}
	w.out.good++
	w.out.latencies = append(w.out.latencies, took)
	w.out.firsts = append(w.out.firsts, a.first.Sub(began))
	if w.once {
		w.out.visits[c.id] = append(w.out.visits[c.id], visit{a.engine, size})
	}
	if !w.conn.reusable {
		w.conn.Close()
		w.conn = nil
	}
	return nil
}

// quantile of a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
