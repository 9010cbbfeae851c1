package sim

import "slices"

// slots schedules as llama.cpp's server does: every request needs one of a fixed number of slots, each
// with an equal part of the KV cache and the contiguous prefix of what it served last. The slot whose
// prefix fits best takes a request, else the least recently used one; when all are busy, requests wait
// first come, first served. A step's batch takes all decodes first, then prompts in slot order.
type slots struct {
	core    *Core
	slots   []slot
	waiting []*sequence
	clock   int64
	evicted int64
}

type slot struct {
	prefix []uint64
	seq    *sequence
	used   int64
}

// slotSimilarity is the least share of a prompt that a slot's prefix must cover to be chosen for it
// (llama.cpp's --slot-prompt-similarity).
const slotSimilarity = 0.10

func newSlots(c *Core) *slots {
	return &slots{core: c, slots: make([]slot, c.opt.MaxRunning)}
}

func (l *slots) submit(s *sequence) error {
	l.waiting = append(l.waiting, s)
	return nil
}

func (l *slots) abort(s *sequence) {
	if s.slot == 0 {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *sequence) bool { return w == s })
	} else {
		l.leave(s)
	}
	l.core.retire(Aborted, s)
}

// leave frees a sequence's slot and keeps what it computed as the slot's prefix.
func (l *slots) leave(s *sequence) {
	sl := &l.slots[s.slot-1]
	l.clock++
	sl.prefix, sl.seq, sl.used = s.chain[:s.computed/l.core.opt.BlockTokens], nil, l.clock
	s.slot = 0
}

func (l *slots) plan(batch []work) []work {
	for len(l.waiting) > 0 && l.place(l.waiting[0]) {
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	for i := range l.slots {
		if s := l.slots[i].seq; s != nil && s.produced > 0 {
			batch = append(batch, work{seq: s, tokens: 1, context: s.computed, decode: true})
		}
	}
	budget := l.core.opt.MaxBatchedTokens - len(batch)
	for i := range l.slots {
		if s := l.slots[i].seq; s != nil && s.produced == 0 && budget > 0 {
			n := min(s.total-s.computed, budget)
			batch = append(batch, work{seq: s, tokens: n, context: s.computed})
			budget -= n
		}
	}
	return batch
}

func (l *slots) place(s *sequence) bool {
	block := l.core.opt.BlockTokens
	most := (s.total - 1) / block
	best, same := -1, 0
	for i := range l.slots {
		if n := common(l.slots[i].prefix, s.chain[:most]); l.slots[i].seq == nil && n > same && float64(n*block) > slotSimilarity*float64(s.total) {
			best, same = i, n
		}
	}
	if best < 0 {
		for i := range l.slots {
			if l.slots[i].seq == nil && (best < 0 || l.slots[i].used < l.slots[best].used) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		same = common(l.slots[best].prefix, s.chain[:most])
	}
	sl := &l.slots[best]
	l.evicted += int64(len(sl.prefix) - same)
	sl.seq, sl.prefix = s, nil
	s.slot, s.computed = best+1, same*block
	l.core.admit(s, s.computed)
	return true
}

func (l *slots) finish(batch []work) {
	for i := range batch {
		s := batch[i].seq
		s.computed += batch[i].tokens
		if s.computed == s.total && l.core.produce(s) {
			l.leave(s)
			l.core.retire(Finished, s)
		}
	}
}

func (l *slots) reset() bool {
	for i := range l.slots {
		l.slots[i].prefix = nil
	}
	return true
}

func (l *slots) stats(st *Stats) {
	block := l.core.opt.BlockTokens
	st.Waiting = len(l.waiting)
	st.Capacity = l.core.opt.KVTokens
	st.Evicted = l.evicted * int64(block)
	for i := range l.slots {
		sl := &l.slots[i]
		if sl.seq == nil {
			st.Stored += len(sl.prefix) * block
			continue
		}
		st.Running++
		st.Used += sl.seq.computed
		st.Stored += sl.seq.computed
		if sl.seq.produced == 0 {
			st.WaitingFresh += sl.seq.total - sl.seq.computed
		}
	}
	for _, s := range l.waiting {
		st.WaitingFresh += s.total
	}
}

var _ scheduler = (*slots)(nil)
