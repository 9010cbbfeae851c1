package ring

// refresh makes a run and all runs that it grows out of the most recently used ones of their engine, deepest first: what
// lies nearer to the beginning of a prompt ends up newer and outlives what lies behind it.
func (x *index) refresh(r uint32, now int64) {
	for r != none {
		run := x.runs.at(r)
		run.used = now
		if run.newer != none {
			x.unlink(r)
			x.pushNewest(r)
		}
		r = run.parent
	}
}

func (x *index) pushNewest(r uint32) {
	run := x.runs.at(r)
	c := &x.caches[run.engine]
	run.newer, run.older = none, c.newest
	if c.newest != none {
		x.runs.at(c.newest).newer = r
	} else {
		c.oldest = r
	}
	c.newest = r
}

func (x *index) unlink(r uint32) {
	run := x.runs.at(r)
	c := &x.caches[run.engine]
	if run.newer != none {
		x.runs.at(run.newer).older = run.older
	} else {
		c.newest = run.older
	}
	if run.older != none {
		x.runs.at(run.older).newer = run.newer
	} else {
		c.oldest = run.newer
	}
	run.newer, run.older = none, none
}

// shrink keeps an engine within its capacity, and all of them within the common bounds.
func (x *index) shrink(engine uint16) {
	c := &x.caches[engine]
	for c.tokens > c.capacity && c.oldest != none {
		x.dropTail(c.oldest)
		x.Evicted++
	}
	for (x.tokens > x.maxTokens || x.entries.len() > x.maxPoints) && x.tokens > 0 {
		x.dropTail(x.caches[x.payer(engine)].oldest)
		x.Shed++
	}
}

// payer names the engine that gives a segment up for the common bounds: the one that grows, if it has more than its share of
// either bound, else the next one in turn that has. There is one, as the bound is exceeded.
func (x *index) payer(engine uint16) int {
	over := func(c *cache) bool {
		n := int64(len(x.caches))
		if x.tokens > x.maxTokens {
			return c.tokens*n > x.maxTokens
		}
		return int64(c.points)*n > int64(x.maxPoints)
	}
	if over(&x.caches[engine]) {
		return int(engine)
	}
	for !over(&x.caches[x.hand]) {
		x.hand = (x.hand + 1) % len(x.caches)
	}
	return x.hand
}

// dropUnused forgets all of an engine's runs that were last used at or before a time.
func (x *index) dropUnused(engine uint16, since int64) (dropped int) {
	c := &x.caches[engine]
	for c.oldest != none && x.runs.at(c.oldest).used <= since {
		x.dropTail(c.oldest)
		dropped++
	}
	return dropped
}

// clear forgets all that an engine held.
func (x *index) clear(engine uint16) {
	for c := &x.caches[engine]; c.oldest != none; {
		x.dropTail(c.oldest)
	}
}

// Sizes of what the index holds, for its gauge.
const (
	entrySize = 40
	runSize   = 32
)

// bytes is the memory that the index takes.
func (x *index) bytes() int64 {
	return int64(len(x.entries.chunks))*chunkSize*entrySize + int64(cap(x.entries.free)+cap(x.runs.free))*4 +
		int64(len(x.runs.chunks))*chunkSize*runSize + int64(len(x.pairs.heads)+len(x.heads.heads))*chunkSize*4
}
