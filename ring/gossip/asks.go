package gossip

import (
	"sync"
	"time"
)

// Requests to take a prefill back go straight to the proxy that has it, are answered, sent again when no answer came, and
// done once however often they arrive. A lost one costs waiting, nothing else.
const (
	askAgain  = 20 * time.Millisecond
	askTimes  = 4 // the first and three more
	maxAsked  = 1024
	maxAsking = 1024
)

// asks keeps both sides of asking. Safe for concurrent use.
type asks struct {
	mu       sync.Mutex
	asking   map[uint64]*asking
	answered map[uint64]Answer // by id: what was answered, so that a repeated request is not done again
	order    []uint64          // of answered, oldest first
	totals   AskTotals
}

type asking struct {
	to   string
	ask  Ask
	sent int
	next int64
	done func(Answer)
}

// AskTotals counts requests to take prefills back.
type AskTotals struct {
	Asked      uint64 `json:"asked"`      // turns for which a member was asked
	Freed      uint64 `json:"freed"`      // of these, for which something gave way there
	Unanswered uint64 `json:"unanswered"` // messages, those sent while a turn waits and after included
	Got        uint64 `json:"got"`        // messages of others, each once
	Repeated   uint64 `json:"repeated"`   // got again
	Shed       uint64 `json:"shed"`       // not asked, as too many are open
}

func newAsks() *asks {
	return &asks{asking: make(map[uint64]*asking), answered: make(map[uint64]Answer)}
}

// open notes a request that is about to be sent, and whether it is its turn's first; false if there are too many.
func (a *asks) open(now int64, to string, ask Ask, first bool, done func(Answer)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asking) >= maxAsking {
		a.totals.Shed++
		return false
	}
	if first {
		a.totals.Asked++
	}
	a.asking[ask.ID] = &asking{to: to, ask: ask, sent: 1, next: now + int64(askAgain), done: done}
	return true
}

// due calls send for each request to be sent again, and ends those that got no answer.
func (a *asks) due(now int64, send func(to string, ask Ask)) {
	a.mu.Lock()
	var again []*asking
	var ended []func(Answer)
	for id, q := range a.asking {
		switch {
		case q.next > now:
		case q.sent >= askTimes:
			delete(a.asking, id)
			a.totals.Unanswered++
			ended = append(ended, q.done)
		default:
			q.sent++
			q.next = now + int64(askAgain)
			again = append(again, q)
		}
	}
	a.mu.Unlock()
	for _, q := range again {
		send(q.to, q.ask)
	}
	for _, done := range ended {
		if done != nil {
			done(NoAnswer)
		}
	}
}

// withdraw sends nothing of a turn to a member again that may be on its way.
func (a *asks) withdraw(to string, ask Ask) {
	a.mu.Lock()
	var ended []func(Answer)
	for id, q := range a.asking {
		if q.to == to && q.ask.Engine == ask.Engine && q.ask.Request == ask.Request {
			delete(a.asking, id)
			ended = append(ended, q.done)
		}
	}
	a.mu.Unlock()
	for _, done := range ended {
		if done != nil {
			done(NoAnswer)
		}
	}
}

// pending tells whether a request waits for its answer.
func (a *asks) pending() bool { return a.waiting() > 0 }

// waiting is how many do.
func (a *asks) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asking)
}

// answer ends a request; repeated answers and those to nobody's request are left.
func (a *asks) answer(id uint64, answer Answer) {
	a.mu.Lock()
	q := a.asking[id]
	delete(a.asking, id)
	if q != nil && answer == Freed {
		a.totals.Freed++
	}
	a.mu.Unlock()
	if q != nil && q.done != nil {
		q.done(answer)
	}
}

// asked does what is asked for, once for each id, and returns the answer. The lock is held meanwhile: do must not block.
func (a *asks) asked(ask Ask, do func(Ask) Answer) Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer, ok := a.answered[ask.ID]; ok {
		a.totals.Repeated++
		return answer
	}
	a.totals.Got++
	answer := Refused
	if do != nil {
		answer = do(ask)
	}
	if len(a.order) >= maxAsked {
		delete(a.answered, a.order[0])
		a.order = a.order[1:]
	}
	a.answered[ask.ID] = answer
	a.order = append(a.order, ask.ID)
	return answer
}

func (a *asks) view() AskTotals {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.totals
}
