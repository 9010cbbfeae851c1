package ring

import "slices"

// A new session looks at few engines, however many there are: the first of the ring from its key, those that hold the most of its
// prompt, and its parent's.
const (
	maxRingCandidates = 8
	maxHolders        = 4
	maxCandidates     = maxRingCandidates + maxHolders + 1 + len(look{}.likely)
)

// candidate is an engine looked at for a turn.
type candidate struct {
	e        *engine
	warm     int     // tokens of the prompt that count as held there
	held     int     // kept points that the index says it holds
	seen     int     // tokens that the index says it holds; warm is less when answers have disproved it before
	cost     float64 // seconds, see Placer.cost
	presence int     // tokens that the session would add to its memory
	load     float64 // live context over capacity
}

// look gathers what a decision about one turn needs to know.
type look struct {
	t        *Turn
	m        *model
	tokens   int      // of the prompt
	head     int      // tokens of its head
	spread   bool     // the head is shared by so many sessions that it plays no part in the choice
	deepest  int      // kept points that some engine holds
	excluded []uint16 // slots
	likely   [2]likely
	isNew    bool   // its session is
	had      uint32 // canonical bytes of the session's last prompt here; 0 = none, or not known
	lived    ref    // the engine that the session is bound to
	lives    ref    // the engine that already counts the session's context, if any
	has      int    // that context
}

// likely is an engine where others have told something to be that this turn may share.
type likely struct {
	e    *engine
	warm int // tokens of the prompt
}

// expect notes that a turn will find tokens of its prompt on an engine, by what others have told.
func (l *look) expect(e *engine, warm int) {
	for i := range l.likely {
		if x := &l.likely[i]; x.e == nil || x.e == e {
			x.e, x.warm = e, max(x.warm, warm)
			return
		}
	}
}

// expected is how many tokens it will find there by what others have told.
func (l *look) expected(e *engine) int {
	for i := range l.likely {
		if l.likely[i].e == e {
			return l.likely[i].warm
		}
	}
	return 0
}

func (l *look) usable(e *engine) bool {
	return e != nil && e.State.takesTurns() && !slices.Contains(l.excluded, e.slot)
}

// consider adds an engine to the candidates once, with its cost.
func (p *Placer) consider(l *look, e *engine) {
	if len(p.candidates) == cap(p.candidates) {
		return
	}
	for i := range p.candidates {
		if p.candidates[i].e == e {
			return
		}
	}
	c := candidate{e: e}
	if l.deepest > 0 {
		c.held = p.index.depth(p.kept[:l.deepest], int(e.slot), l.deepest)
		c.seen = p.warmTokens(l, c.held)
		if !e.cacheless() {
			c.warm = c.seen
		}
	}
	if told := l.expected(e); told > 0 && !e.cacheless() {
		c.seen = max(c.seen, told)
		c.warm = c.seen
	}
	p.candidates = append(p.candidates, c)
	p.price(l, &p.candidates[len(p.candidates)-1])
}

func (p *Placer) warmTokens(l *look, held int) int {
	if held == 0 {
		return 0
	}
	return min(l.m.tokens(int(p.kept[held-1].Bytes)), l.tokens)
}

// price puts the cost of a turn on an engine, in seconds:
//
//	(fresh tokens waiting + own fresh tokens) ÷ rate + 0.02 × requests in flight + tokens pushed out of memory ÷ rate
//
// A head that many active sessions share is no part of the own fresh tokens: computing it once more pays off.
func (p *Placer) price(l *look, c *candidate) {
	e := c.e
	fresh := l.tokens - c.warm
	if l.spread && c.warm < l.head {
		fresh = l.tokens - l.head
	}
	c.presence = fresh // what others hold there already is shared
	if e.ref() == l.lives {
		c.presence = max(0, l.tokens-l.has)
	}
	work := e.waiting + e.remote.waiting + int64(fresh) + e.overflow(int64(c.presence))
	c.cost = float64(work)/p.rateOf(e) + p.opt.RunningCost.Seconds()*float64(e.inFlight()+e.remote.queued+e.remote.running)
	c.load = float64(e.live()) / float64(e.capacity)
}

// gather fills the candidates of a turn that may go anywhere.
func (p *Placer) gather(l *look, ringKey uint64, parent *engine) {
	pool := l.m.pool
	p.fromRing(l, ringKey, pool.open, false)
	if len(p.candidates) > 0 && l.deepest > 0 {
		n := 0
		for i := p.index.holders(p.kept[l.deepest-1].Fingerprint); i != none && n < maxHolders; n++ {
			entry := p.index.entries.at(i)
			if e := p.engines[entry.engine]; l.usable(e) && e.State != Busy && pool.serves(e) {
				p.consider(l, e)
			}
			i = entry.same
		}
	}
	for _, e := range [...]*engine{parent, l.likely[0].e, l.likely[1].e} {
		if e != nil && l.usable(e) && e.State != Busy && pool.serves(e) {
			p.consider(l, e)
		}
	}
	if len(p.candidates) == 0 {
		p.fromRing(l, ringKey, pool.busy, true)
	}
}

// ringSteps bounds the walk on the ring; with more engines down than up it is faster to go through the list of the others.
const ringSteps = 64

// fromRing considers the first engines of the ring from a key that take new sessions.
func (p *Placer) fromRing(l *look, ringKey uint64, list []uint16, busy bool) {
	pool, want := l.m.pool, min(p.opt.Candidates, len(list))
	if want == 0 {
		return
	}
	i := pool.ring.find(ringKey)
	for range ringSteps {
		e := p.engines[pool.engines[pool.ring.owners[i]]]
		if l.usable(e) && (e.State == Busy) == busy {
			if p.consider(l, e); len(p.candidates) >= want {
				return
			}
		}
		i = pool.ring.after(i)
	}
	at := int(mix(ringKey) % uint64(len(list)))
	for n := 0; n < min(len(list), ringSteps) && len(p.candidates) < want; n++ {
		if e := p.engines[list[(at+n)%len(list)]]; l.usable(e) {
			p.consider(l, e)
		}
	}
}

// home is the engine that the ring gives a key: the first that takes new sessions.
func (p *Placer) home(pool *pool, ringKey uint64) *engine {
	i := pool.ring.find(ringKey)
	for range ringSteps {
		if e := p.engines[pool.engines[pool.ring.owners[i]]]; e.State.takesTurns() {
			return e
		}
		i = pool.ring.after(i)
	}
	for _, list := range [2][]uint16{pool.open, pool.busy} {
		if len(list) > 0 {
			return p.engines[list[mix(ringKey)%uint64(len(list))]]
		}
	}
	return nil
}

// cheapest chooses among the candidates: the least cost; among costs that differ by less than a tie, the engine with the most
// free memory; and among those that differ by less than this prompt takes, the first on the ring. The last rule makes proxies that know
// nothing of each other agree, and costs less than one session of balance.
func (p *Placer) cheapest(l *look) *candidate {
	least := p.candidates[0].cost
	for i := range p.candidates {
		least = min(least, p.candidates[i].cost)
	}
	tie := least + max(p.opt.Tie.Seconds(), least/10)
	load := -1.0
	for i := range p.candidates {
		if c := &p.candidates[i]; c.cost <= tie && (load < 0 || c.load < load) {
			load = c.load
		}
	}
	for i := range p.candidates {
		c := &p.candidates[i]
		if c.cost <= tie && c.load <= load+float64(c.presence)/float64(c.e.capacity) {
			return c
		}
	}
	return &p.candidates[0]
}
