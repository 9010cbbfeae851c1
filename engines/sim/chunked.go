package sim

import "slices"

// chunked schedules as SGLang does. A prefill batch always goes before a decode batch, so decodes
// freeze while prompts are computed (unless MixedChunk). A prompt that does not fit the chunk budget
// becomes the one chunked request: it takes the whole budget of every step until its last chunk. Its
// finished chunks are stashed in the radix tree at the beginning of the next step, so an abort loses
// the chunk in flight and no more. Running decodes end an abort with one more decode pass.
type chunked struct {
	core    *Core
	tree    *radixTree
	cap     int // blocks in all
	private int // blocks held by requests outside the tree
	waiting []*sequence
	running []*sequence
	chunk   *sequence // the prompt that is in between chunks
}

// decodeReserve is the share of the answers still to come that admission keeps free, and
// decodeReserveCap the most it assumes of one answer. SGLang's ratio starts at 0.7 and falls while
// all goes well; this is a value it spends most of its time near.
const (
	decodeReserve    = 0.3
	decodeReserveCap = 4096
)

func newChunked(c *Core) *chunked {
	return &chunked{core: c, tree: newRadixTree(), cap: max(c.opt.KVTokens/c.opt.BlockTokens, 1)}
}

func (c *chunked) submit(s *sequence) error {
	if most := c.core.opt.MaxQueued; most > 0 && len(c.waiting) >= most {
		return ErrQueueFull
	}
	c.waiting = append(c.waiting, s)
	return nil
}

func (c *chunked) abort(s *sequence) {
	if i := slices.Index(c.waiting, s); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	} else if c.chunk == s {
		c.chunk = nil
		c.release(s, false)
	} else {
		return // decoding: ends in finish
	}
	c.core.retire(Aborted, s)
}

// stash hands a sequence's full blocks to the tree and locks them there.
func (c *chunked) stash(s *sequence) {
	block := c.core.opt.BlockTokens
	full := s.computed / block
	node := c.tree.insert(s.chain[:full])
	c.tree.lock(node)
	c.tree.unlock(s.node)
	s.node, s.stashed = node, full
	c.hold(s, (s.computed+block-1)/block-full)
}

// hold sets how many blocks a sequence has outside the tree.
func (c *chunked) hold(s *sequence, blocks int) {
	c.private += blocks - s.held
	s.held = blocks
}

// release frees what a sequence holds; with keep, its full blocks stay in the tree.
func (c *chunked) release(s *sequence, keep bool) {
	if keep {
		c.stash(s)
	}
	c.hold(s, 0)
	c.tree.unlock(s.node)
	s.node, s.stashed, s.computed = nil, 0, 0
}

// lack is how many more blocks a sequence needs for its next n tokens.
func (c *chunked) lack(s *sequence, n int) int {
	block := c.core.opt.BlockTokens
	return (s.computed+n+block-1)/block - s.stashed - s.held
}

// extend gets blocks for a sequence's next n tokens, evicting if need be.
func (c *chunked) extend(s *sequence, n int) bool {
	need := c.lack(s, n)
	if need > c.available()+c.evictable() {
		return false
	}
	c.tree.evict(need - c.available())
	c.hold(s, s.held+need)
	return true
}

func (c *chunked) available() int { return c.cap - c.tree.size - c.private }

func (c *chunked) evictable() int { return c.tree.size - c.tree.locked }

func (c *chunked) plan(batch []work) []work {
	batch = c.planPrefill(batch)
	if len(batch) > 0 && !c.core.opt.MixedChunk {
		return batch
	}
	return c.planDecode(batch)
}

func (c *chunked) planPrefill(batch []work) []work {
	block, budget := c.core.opt.BlockTokens, c.core.opt.MaxBatchedTokens
	starting := 0
	if s := c.chunk; s != nil {
		c.stash(s)
		n := min(s.total-s.computed, budget)
		if n < s.total-s.computed {
			n -= (s.computed + n) % block // chunks end at a page
		}
		for n > 0 && !c.extend(s, n) { // no memory for the next chunk: somebody must give way
			if !c.retract() {
				return batch
			}
		}
		batch = append(batch, work{seq: s, tokens: n, context: s.computed})
		budget -= n
		if s.computed+n == s.total {
			c.chunk = nil
		}
		starting++
	}
	for budget > 0 && c.chunk == nil && len(c.waiting) > 0 && len(c.running)+starting < c.core.opt.MaxRunning {
		s := c.waiting[0]
		hit, node := c.tree.match(s.chain[:(s.total-1)/block])
		c.tree.lock(node)
		s.node, s.stashed, s.computed = node, hit, hit*block
		fresh := s.total - s.computed
		n := fresh
		if n > budget {
			n = budget - (s.computed+budget)%block
		}
		room := (c.available() + c.evictable()) * block
		alone := len(c.running) == 0 && len(batch) == 0
		if n <= 0 || (!alone && fresh+c.reserved(s) > room) || !c.extend(s, n) {
			c.tree.unlock(node)
			s.node, s.stashed, s.computed = nil, 0, 0
			break
		}
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.core.admit(s, s.computed)
		batch = append(batch, work{seq: s, tokens: n, context: s.computed})
		budget -= n
		starting++
		if n < fresh {
			c.chunk = s
		}
	}
	return batch
}

// reserved is the memory that admission leaves for answers: those running and the newcomer's.
func (c *chunked) reserved(newcomer *sequence) int {
	sum := min(newcomer.req.MaxTokens, decodeReserveCap)
	for _, s := range c.running {
		sum += min(s.req.MaxTokens-s.produced, decodeReserveCap)
	}
	return int(float64(sum) * decodeReserve)
}

// planDecode adds a token for every running request; when memory does not suffice for all, some are
// thrown back first.
func (c *chunked) planDecode(batch []work) []work {
	for {
		need := 0
		for _, s := range c.running {
			need += c.lack(s, 1)
		}
		if need <= c.available()+c.evictable() || !c.retract() {
			break
		}
	}
	for _, s := range c.running {
		c.extend(s, 1)
		batch = append(batch, work{seq: s, tokens: 1, context: s.computed, decode: true})
	}
	return batch
}

// retract throws the running request with the shortest answer back into the queue; what it generated
// is lost to the cache, its prompt is not.
func (c *chunked) retract() bool {
	var victim *sequence
	for _, s := range c.running {
		if victim == nil || s.produced < victim.produced || (s.produced == victim.produced && s.req.Prompt.Tokens > victim.req.Prompt.Tokens) {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	c.running = slices.DeleteFunc(c.running, func(s *sequence) bool { return s == victim })
	c.release(victim, false)
	c.core.total.Preempted++
	if victim.aborting {
		c.core.retire(Aborted, victim)
		return true
	}
	c.waiting = append(c.waiting, victim)
	return true
}

func (c *chunked) finish(batch []work) {
	for i := range batch {
		w := &batch[i]
		s := w.seq
		s.computed += w.tokens
		if s.computed < s.total {
			continue // more chunks to come
		}
		if !w.decode {
			c.stash(s)
			c.running = append(c.running, s)
		}
		last := c.core.produce(s)
		if !last && !(s.aborting && w.decode) {
			continue
		}
		c.running = slices.DeleteFunc(c.running, func(r *sequence) bool { return r == s })
		c.release(s, true)
		if last {
			c.core.retire(Finished, s)
		} else {
			c.core.retire(Aborted, s)
		}
	}
}

func (c *chunked) reset() bool {
	if len(c.core.live) > 0 {
		return false
	}
	c.tree.reset()
	return true
}

func (c *chunked) stats(st *Stats) {
	block := c.core.opt.BlockTokens
	// A prompt between its chunks counts neither as running nor as waiting.
	st.Running, st.Waiting = len(c.running), len(c.waiting)
	st.Capacity = c.cap * block
	st.Used = (c.tree.locked + c.private) * block
	st.Stored = (c.tree.size + c.private) * block
	st.Evicted = c.tree.evicted * int64(block)
	if c.chunk != nil {
		st.WaitingFresh += c.chunk.total - c.chunk.computed
	}
	for _, s := range c.waiting {
		st.WaitingFresh += s.total - c.tree.peek(s.chain[:(s.total-1)/block])*block
	}
}

var _ scheduler = (*chunked)(nil)
