package gossip

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/warmring/warmring/ring"
)

// silence is how long a member's loads count without being told anew, at least; three of its own intervals if that is more. What
// is older is unknown, which is not 0: it is left out of the sums, so that the own charges decide.
const silence = 2 * time.Second

// loads is what the members have charged, each as it last told. The library hands on the packets of a burst in reverse, so what counts is
// the number that a message has from its sender, for each engine by itself. Safe for concurrent use.
type loads struct {
	mu      sync.Mutex
	members map[uint32]*memberLoads
	old     uint64 // messages with something that came after newer ones
}

type memberLoads struct {
	at       int64
	interval time.Duration
	report   uint64 // number of the newest full report: what is older says nothing any more
	newest   uint64 // number of the newest message
	stale    bool
	engines  map[uint32]numberedLoad // those of 0 are kept until the next report, for their number
}

type numberedLoad struct {
	ring.Load
	number uint64 // of the message that told it
}

func newLoads() *loads { return &loads{members: make(map[uint32]*memberLoads)} }

// take notes a member's message and returns the new sums of the engines that it concerns. A full report replaces all that the member
// said before, another message what it said of these engines. Messages may come in any order and number: the result is that of their
// numbers' order.
func (l *loads) take(now int64, m *Message) []ring.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.members[m.Sender]
	if from == nil {
		if !m.HasLoads && len(m.Loud) == 0 {
			return nil
		}
		from = &memberLoads{engines: make(map[uint32]numberedLoad), interval: silence}
		l.members[m.Sender] = from
	}
	if m.Sequence > from.newest {
		from.newest, from.at, from.stale = m.Sequence, now, false
	}
	if m.Sequence <= from.report {
		l.old++
		return nil
	}
	var touched []uint32
	if m.HasLoads {
		from.report, from.interval = m.Sequence, m.Interval
		for id, load := range from.engines {
			if load.number < m.Sequence {
				touched = append(touched, id)
				delete(from.engines, id)
			}
		}
	}
	outdated := false
	for _, list := range [2][]ring.Load{m.Loads, m.Loud} {
		for _, load := range list {
			if from.engines[load.Engine].number > m.Sequence {
				outdated = true
				continue
			}
			touched = append(touched, load.Engine)
			from.engines[load.Engine] = numberedLoad{load, m.Sequence}
		}
	}
	if outdated {
		l.old++
	}
	return l.sums(touched)
}

// age returns the new sums of the engines of members that have fallen silent.
func (l *loads) age(now int64) []ring.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	var touched []uint32
	for _, m := range l.members {
		if !m.stale && now-m.at > int64(max(silence, 3*m.interval)) {
			m.stale = true
			for id := range m.engines {
				touched = append(touched, id)
			}
			clear(m.engines)
			m.report = m.newest // what comes late is of before the silence
		}
	}
	return l.sums(touched)
}

// forget drops a member that has left.
func (l *loads) forget(member uint32) []ring.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.members[member]
	if m == nil {
		return nil
	}
	delete(l.members, member)
	var touched []uint32
	for id := range m.engines {
		touched = append(touched, id)
	}
	return l.sums(touched)
}

func (l *loads) sums(engines []uint32) []ring.Load {
	slices.Sort(engines)
	engines = slices.Compact(engines)
	sums := make([]ring.Load, 0, len(engines))
	for _, id := range engines {
		sum := ring.Load{Engine: id}
		for _, m := range l.members {
			if load, ok := m.engines[id]; ok {
				sum.Waiting += load.Waiting
				sum.Queued += load.Queued
				sum.Running += load.Running
			}
		}
		sums = append(sums, sum)
	}
	return sums
}

// heard is how long ago a member last told its loads; false if it never did.
func (l *loads) heard(now int64, member uint32) (age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.members[member]
	if m == nil {
		return 0, false
	}
	return time.Duration(now - m.at), true
}

type waiter struct {
	member uint32
	tokens int64
}

// waiters are the members with more than so many fresh tokens waiting on an engine, those with the most first, maxWaiters of them at most.
func (l *loads) waiters(engine uint32, above int64) []waiter {
	l.mu.Lock()
	var list []waiter
	for id, m := range l.members {
		if load, ok := m.engines[engine]; ok && load.Waiting > above {
			list = append(list, waiter{id, load.Waiting})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b waiter) int {
		return cmp.Or(cmp.Compare(b.tokens, a.tokens), cmp.Compare(a.member, b.member))
	})
	return list[:min(len(list), maxWaiters)]
}

// silent tells whether a member has told nothing for so long that others take over what it looks after.
func (l *loads) silent(now int64, member uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.members[member]
	return m == nil || now-m.at > int64(max(silence, 3*m.interval))
}

func (l *loads) late() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old
}
