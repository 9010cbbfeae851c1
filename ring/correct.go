package ring

// learn takes from an answer what it says about the model's tokens, the engine's speed and the engine's cache.
func (c *Charge) learn(o Outcome) {
	fresh := c.fresh
	if o.Bypassed {
		fresh = c.tokens
		if o.PromptTokens > 0 {
			fresh = o.PromptTokens
		}
	} else if o.PromptTokens > 0 && o.CachedTokens >= 0 {
		fresh = o.PromptTokens - o.CachedTokens
	}
	if c.alone && c.elapsed > 0 {
		c.e.rate.learn(fresh, c.elapsed)
		c.p.fleetRate.learn(fresh, c.elapsed)
	}
	if o.PromptTokens <= 0 || c.continues || c.bytes == 0 {
		return
	}
	expected := c.expectation(o)
	c.m.learn(c.bytes, o.PromptTokens)
	if o.CachedTokens >= 0 && !o.Bypassed {
		c.correct(expected, o.CachedTokens)
	}
}

// Differences that say nothing: engines cache whole blocks, and always compute the last one.
const (
	minSurprise = 1024
	// settled is how old the last use of something must be before its absence is held against the engine: what another request
	// was still computing when this one was placed may have come too late for it.
	settled = 10e9
)

// correct compares what was expected to be cached with what was. The engine has computed this prompt now, so it holds all of
// it; a surprise tells of the rest of its cache.
//
//   - More than expected: the engine keeps more than was believed, so an unknown capacity grows by as much.
//   - Less: what was used no later than the missing part is probably gone as well (least recently used goes first), at once if
//     all caches were lost without notice. One session can have reasons of its own, such as a client that changes a
//     word at the front, so it takes two to be believed, and a third that finds what it expects clears the engine.
//   - A session that falls short twice in a row is believed to have no more than it had last time, for itself alone.
//   - An engine that never has anything cached is taken for one that does not cache.
func (c *Charge) correct(expected, cached int) {
	p, e := c.p, c.e
	p.totals.Expected += uint64(max(expected, 0))
	p.totals.Cached += uint64(cached)
	slack := max(minSurprise, expected/10)
	var s *session
	if c.session != none && p.sessions.all.at(c.session).key == c.key {
		s = p.sessions.all.at(c.session)
	}
	if cached > 0 {
		e.uncached = 0
	}
	switch {
	case cached > expected+slack:
		p.totals.More++
		e.grow(int64(cached-expected), int64(cached))
		p.index.caches[e.slot].capacity = e.capacity
	case cached+slack < expected:
		p.totals.Less++
		if cached == 0 {
			e.uncached++
		}
		first := true
		if s != nil {
			first = s.short == 0
			s.short = min(s.short+1, 250)
			s.cached = uint32(cached)
		}
		if !first || c.before == 0 || c.start-c.before < settled {
			return
		}
		if e.suspect == 0 || e.suspectSession == c.key {
			e.suspect, e.suspectSession = c.before, c.key
			return
		}
		p.totals.Corrected += uint64(p.index.dropUnused(e.slot, min(e.suspect, c.before)))
		e.suspect = 0
		return
	case expected > slack && e.suspect >= c.before:
		e.suspect = 0
	}
	if s != nil {
		s.short = 0
	}
}

// grow raises a capacity that nobody has reported: by what turned out to be there beyond the belief, and at least to what
// is there.
func (e *engine) grow(by, proven int64) {
	if e.KVTokens == 0 {
		e.capacity = max(e.capacity+by, proven)
	}
}
