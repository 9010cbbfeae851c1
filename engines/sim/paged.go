package sim

import "slices"

// paged schedules as vLLM's V1 scheduler does. Each step has a budget of tokens: running requests take
// from it in list order (a long prefill may take all), waiting ones get what remains. Requests are
// admitted first come, first served, when their whole prompt fits. When a running request finds no
// block, the last of the running list is thrown back to the head of the queue; its blocks stay
// findable. Source of the rules: facts on v1/core/sched/scheduler.py and v1/core/block_pool.py.
type paged struct {
	core    *Core
	pool    *blockPool
	waiting []*sequence
	running []*sequence
}

func newPaged(c *Core) *paged {
	return &paged{core: c, pool: newBlockPool(max(c.opt.KVTokens/c.opt.BlockTokens, 2))}
}

func (p *paged) submit(s *sequence) error {
	p.waiting = append(p.waiting, s)
	return nil
}

func (p *paged) abort(s *sequence) {
	if i := slices.Index(p.running, s); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	} else if i := slices.Index(p.waiting, s); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.release(s)
	p.core.retire(Aborted, s)
}

func (p *paged) release(s *sequence) {
	p.pool.release(s.blocks)
	s.blocks, s.computed = s.blocks[:0], 0
}

// share is what a sequence may get of the budget in this step.
func (p *paged) share(rest, budget int) int {
	n := min(rest, budget)
	if most := p.core.opt.LongPrefillThreshold; most > 0 {
		n = min(n, most)
	}
	return n
}

func (p *paged) plan(batch []work) []work {
	budget := p.core.opt.MaxBatchedTokens
	preempted := false
	for i := 0; i < len(p.running) && budget > 0; i++ {
		s := p.running[i]
		n := p.share(s.total-s.computed, budget)
		fits := p.grow(s, n)
		for !fits {
			victim := p.running[len(p.running)-1]
			p.running = p.running[:len(p.running)-1]
			p.release(victim)
			p.waiting = slices.Insert(p.waiting, 0, victim)
			p.core.total.Preempted++
			preempted = true
			if victim == s {
				break
			}
			fits = p.grow(s, n)
		}
		if !fits {
			break
		}
		batch = append(batch, p.work(s, n))
		budget -= n
	}
	if preempted {
		return batch // vLLM admits nobody in a step that threw somebody back
	}
	block := p.core.opt.BlockTokens
	for len(p.waiting) > 0 && budget > 0 && len(p.running) < p.core.opt.MaxRunning {
		s := p.waiting[0]
		// The last token is always computed: its logits start the answer.
		hit, free := p.pool.lookup(s.chain, (s.total-1)/block)
		if (s.total+block-1)/block-hit+free > p.pool.free {
			break
		}
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.running = append(p.running, s)
		s.blocks = p.pool.hold(s.blocks[:0], s.chain, hit)
		s.computed = hit * block
		p.core.admit(s, s.computed)
		n := p.share(s.total-s.computed, budget)
		p.grow(s, n)
		batch = append(batch, p.work(s, n))
		budget -= n
	}
	return batch
}

func (p *paged) work(s *sequence, n int) work {
	return work{seq: s, tokens: n, context: s.computed, decode: n == 1 && s.produced > 0 && s.total-s.computed == 1}
}

// grow gets blocks for a sequence's next n tokens and makes the full ones findable at once, before
// they are computed, as vLLM does.
func (p *paged) grow(s *sequence, n int) bool {
	block := p.core.opt.BlockTokens
	need := (s.computed+n+block-1)/block - len(s.blocks)
	if need > p.pool.free {
		return false
	}
	s.blocks = p.pool.take(s.blocks, need)
	for b := s.computed / block; b < (s.computed+n)/block; b++ {
		p.pool.publish(s.blocks[b], s.chain[b])
	}
	return true
}

func (p *paged) finish(batch []work) {
	done := false
	for i := range batch {
		s := batch[i].seq
		if p.core.live[s.req.ID] != s {
			continue // dropped while the step ran
		}
		s.computed += batch[i].tokens
		if s.computed < s.total {
			continue
		}
		if p.core.produce(s) {
			p.release(s)
			p.core.retire(Finished, s)
			done = true
		}
	}
	if done {
		p.running = slices.DeleteFunc(p.running, func(s *sequence) bool { return p.core.live[s.req.ID] != s })
	}
}

func (p *paged) reset() bool {
	if len(p.running) > 0 {
		return false
	}
	p.pool.reset()
	return true
}

func (p *paged) stats(st *Stats) {
	block := p.core.opt.BlockTokens
	st.Running, st.Waiting = len(p.running), len(p.waiting)
	st.Capacity = len(p.pool.blocks) * block
	st.Used = (len(p.pool.blocks) - 1 - p.pool.free) * block
	stored := 0
	for i := range p.pool.blocks[1:] {
		if b := &p.pool.blocks[i+1]; b.hashed || b.ref > 0 {
			stored++
		}
	}
	st.Stored = stored * block
	st.Evicted = p.pool.evicted * int64(block)
	for _, s := range p.running {
		if s.produced == 0 {
			st.WaitingFresh += s.total - s.computed
		}
	}
	for _, s := range p.waiting {
		hit, _ := p.pool.lookup(s.chain, (s.total-1)/block)
		st.WaitingFresh += s.total - hit*block
	}
}

var _ scheduler = (*paged)(nil)
