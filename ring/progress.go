package ring

import "math"

// Progress says that the engine has computed the prompt up to its first held tokens (of Decision.Prompt, warm ones included)
// without answering it: earlier runs of this request did, which were taken back or were prefixes of it. What they computed is
// off the engine's account, is no surprise when the answer finds it cached, and stays on record if the request leaves the
// engine. Only a higher value than before changes anything.
func (c *Charge) Progress(now int64, held int) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.advance(now)
	held = min(held, c.tokens)
	if c.stage != waiting || held <= c.computed {
		return
	}
	c.computed = held
	if left := c.tokens - held; left < c.fresh {
		c.e.waiting -= int64(c.fresh - left)
		c.fresh = left
	}
}

// Computed says that a run of this request has computed so many fresh tokens in so many ns, with the engine to itself as far as
// the caller knows: nothing else was in prefill there. Short runs say something about its speed together. Each has the engine's
// fixed part of a request in its time, so that they teach a rate that is a little low.
func (c *Charge) Computed(tokens int, took int64) {
	p, e := c.p, c.e
	p.mu.Lock()
	defer p.mu.Unlock()
	if tokens <= 0 || took <= 0 || c.stage != waiting || p.engines[e.slot] != e || e.remote.queued > 0 || e.running+e.remote.running > maxBeside {
		return
	}
	c.ran += tokens
	c.ranFor += took
	if c.ran >= minRateTokens {
		e.rate.learn(c.ran, c.ranFor)
		p.fleetRate.learn(c.ran, c.ranFor)
		c.ran, c.ranFor = 0, 0
	}
}

// expectation is how many tokens of the answer's prompt the engine should have found, given how many it did: between what
// was believed to be held before the request came and what its own earlier runs computed nothing is a surprise.
func (c *Charge) expectation(o Outcome) int {
	of := func(tokens int) int { return int(float64(tokens) / float64(c.tokens) * float64(o.PromptTokens)) }
	expected := of(c.seen)
	if c.computed > c.seen {
		expected = max(expected, min(o.CachedTokens, of(c.computed)))
	}
	return expected
}

// undo takes back what the index was told of this request, but for what earlier runs of it computed.
func (c *Charge) undo() {
	if c.added == 0 {
		return
	}
	last := math.MaxInt
	if c.computed > 0 {
		last = c.tokens - c.computed
	}
	c.p.index.undo(c.e.slot, c.deepest, c.added, last)
}
