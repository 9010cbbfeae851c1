package ring

import (
	"fmt"
	"slices"
)

// A session is cold where it lives when no more than coldShare of its prompt is warm there and more than half of what it had
// there is gone. A prompt that has merely grown does not make it cold: its history is still there.
const (
	coldShare = 0.2
	lostShare = 0.5
)

// Place picks the engine for a turn and charges it, in one step. d is overwritten; it says why. The charge must be released.
// The error wraps ErrUnknownModel or ErrNoEngine.
func (p *Placer) Place(t *Turn, d *Decision) (*Charge, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*d = Decision{}
	p.advance(t.Now)
	l := look{t: t, m: p.model(t.Model)}
	if l.m == nil {
		p.totals.UnknownModel++
		return nil, fmt.Errorf("place a turn for model %q: %w", t.Model, ErrUnknownModel)
	}
	if pool := l.m.pool; len(pool.open)+len(pool.busy) == 0 {
		p.totals.NoEngine++
		return nil, fmt.Errorf("place a turn for model %q, served by %d engines: %w", t.Model, len(pool.engines), ErrNoEngine)
	}
	p.prepare(&l)

	r := p.resolve(t)
	if r.session != none {
		s := p.sessions.all.at(r.session)
		l.had, l.lived = s.bytes, s.engine
	}
	var found *candidate
	if r.session != none && (r.extends || t.Continues) {
		found, d.Reason = p.placeKnown(&l, r)
	} else {
		found, d.Reason = p.placeNew(&l, r)
	}
	if found == nil {
		p.totals.NoEngine++
		return nil, fmt.Errorf("place a turn for model %q, %d engines tried: %w", t.Model, len(t.Exclude), ErrNoEngine)
	}
	chosen := *found // report sorts the candidates
	p.report(&l, d, &chosen, r)
	return p.charge(&l, d, &chosen, r), nil
}

// prepare reads the prompt.
func (p *Placer) prepare(l *look) {
	p.chain, p.kept, p.keptHead, p.candidates = nil, p.kept[:0], 0, p.candidates[:0]
	for _, name := range l.t.Exclude {
		if e := p.byName[name]; e != nil {
			l.excluded = append(l.excluded, e.slot)
		}
	}
	pr := l.t.Prompt
	if pr == nil || len(pr.Chain) == 0 {
		return
	}
	p.chain = pr.Chain
	l.tokens = max(1, l.m.tokens(pr.Bytes))
	head := int32(0)
	if pr.Head > 0 {
		head = pr.Chain[pr.Head-1].Bytes
		l.head = l.m.tokens(int(head))
	}
	for i := range pr.Chain {
		if pr.Chain[i].Keep {
			p.kept = append(p.kept, pr.Chain[i])
			if pr.Chain[i].Bytes <= head {
				p.keptHead = len(p.kept)
			}
		}
	}
}

// placeKnown places the next turn of a session: where it lives, but for good reasons.
func (p *Placer) placeKnown(l *look, r resolved) (*candidate, Reason) {
	s := p.sessions.all.at(r.session)
	e := p.engineOf(s.engine)
	l.lives, l.has = s.engine, int(s.context+s.shared)
	if !s.active {
		l.has = 0
	}
	if e == nil || !l.usable(e) || !l.m.pool.serves(e) {
		why := Failover
		if e != nil && e.State == Draining && len(l.t.Exclude) == 0 {
			why = Moved
		}
		return p.placeAnywhere(l, r, nil), why
	}
	c := candidate{e: e}
	last := p.keptBefore(s.bytes)
	c.held = p.index.depth(p.kept, int(e.slot), last)
	c.seen = p.warmTokens(l, c.held)
	if c.held >= last && s.bytes > 0 && contains(p.chain, s.tail, s.bytes) { // the end of the last prompt, behind its last kept point, is there too
		c.seen = max(c.seen, min(l.m.tokens(int(s.bytes)), l.tokens))
	}
	if p.share != nil {
		c.seen = max(c.seen, min(p.toldWarm(s, e), l.tokens))
	}
	switch c.warm = c.seen; {
	case e.cacheless():
		c.warm = 0
	case s.short >= 2:
		c.warm = min(c.warm, int(s.cached))
	}
	p.price(l, &c)
	p.candidates = append(p.candidates, c)
	home := &p.candidates[0]
	wait := p.opt.Hysteresis.Seconds()
	if float64(c.warm) <= coldShare*float64(l.tokens) && float64(c.warm) < lostShare*float64(l.m.tokens(int(s.bytes))) {
		wait = p.opt.ColdGain.Seconds()
	}
	if l.t.Continues || len(p.chain) == 0 || len(l.m.pool.open) == 0 {
		return home, p.orOnly(l, Bound)
	}
	p.placeAnywhere(l, r, nil)
	if c.cost < wait { // the others are looked at for the record alone
		return home, p.orOnly(l, Bound)
	}
	best := home
	for i := range p.candidates {
		if p.candidates[i].cost < best.cost {
			best = &p.candidates[i]
		}
	}
	if best == home || home.cost-best.cost <= wait {
		return home, p.orOnly(l, Bound)
	}
	return best, Moved
}

// keptBefore is how many kept points lie within a number of bytes.
func (p *Placer) keptBefore(bytes uint32) int {
	n := len(p.kept)
	for n > 0 && uint32(p.kept[n-1].Bytes) > bytes {
		n--
	}
	return n
}

// placeNew places the first turn of a session.
func (p *Placer) placeNew(l *look, r resolved) (*candidate, Reason) {
	var parent *engine
	l.isNew = true
	switch {
	case r.owner != 0:
		parent = p.parent(l, r.owner, false) // as likely to share something with its owner's history, though not all of it
	case l.t.Parent != 0:
		parent = p.parent(l, l.t.Parent, true)
	}
	if r.like != 0 && parent == nil {
		parent = p.followLike(l, r.like)
	}
	if r.stays && parent == nil {
		parent = p.parent(l, join(r.ringKey, r.owner), false)
	}
	c := p.placeAnywhere(l, r, parent)
	if r.stays && c != nil {
		c = p.stayWith(c, parent)
	}
	switch {
	case c == nil:
		return nil, Only
	case len(l.t.Exclude) > 0:
		return c, Failover
	}
	return c, p.orOnly(l, p.why(l, c, r, parent))
}

// stayWith is the candidate on an engine, unless another one gains as much as would move a session from there.
func (p *Placer) stayWith(c *candidate, e *engine) *candidate {
	for i := range p.candidates {
		if at := &p.candidates[i]; at.e == e && at.held > p.keptHead && at.cost-c.cost <= p.opt.Hysteresis.Seconds() {
			return at
		}
	}
	return c
}

// why names what brought a new session to its engine.
func (p *Placer) why(l *look, c *candidate, r resolved, parent *engine) Reason {
	if c.e == parent && (c.held > p.keptHead || l.expected(parent) > l.head) {
		return Parent
	}
	home := p.home(l.m.pool, r.ringKey)
	if c.e == home {
		return Home
	}
	atHome := 0
	for i := range p.candidates {
		if p.candidates[i].e == home {
			atHome = p.candidates[i].warm
		}
	}
	switch {
	case c.warm > atHome:
		return Warm
	case c.e == parent:
		return Parent
	}
	return Spill
}

// orOnly is Only when there is no choice: for a new session when one engine takes turns now, for a bound one when there is
// no other engine at all.
func (p *Placer) orOnly(l *look, r Reason) Reason {
	pool := l.m.pool
	if len(pool.engines) == 1 || r != Bound && len(pool.open)+len(pool.busy) == 1 {
		return Only
	}
	return r
}

// placeAnywhere gathers candidates and chooses the cheapest; nil if there is none.
func (p *Placer) placeAnywhere(l *look, r resolved, parent *engine) *candidate {
	l.deepest = p.index.depth(p.kept, anyone, 0)
	if p.keptHead > 0 && l.head > 0 {
		fingerprint := p.kept[p.keptHead-1].Fingerprint
		copies := p.index.copies(fingerprint)
		l.spread = copies > 0 && p.sessions.users(fingerprint) >= p.opt.SessionsPerCopy*copies
	}
	if l.isNew && p.share != nil {
		p.followMilestones(l)
	}
	p.gather(l, r.ringKey, parent)
	if len(p.candidates) == 0 {
		return nil
	}
	return p.cheapest(l)
}

// report fills in the decision.
func (p *Placer) report(l *look, d *Decision, chosen *candidate, r resolved) {
	d.Engine, d.Warm, d.Prompt = chosen.e.Name, chosen.warm, l.tokens
	d.Extends = r.extends
	if home := p.home(l.m.pool, r.ringKey); home != nil && !r.anywhere {
		d.Home = home.Name
	}
	d.Available = p.available(l, chosen)
	slices.SortStableFunc(p.candidates, func(a, b candidate) int {
		switch {
		case a.cost < b.cost:
			return -1
		case a.cost > b.cost:
			return 1
		}
		return 0
	})
	shown := false
	for i := range p.candidates {
		c := &p.candidates[i]
		if d.N == len(d.Runners) {
			break
		}
		if d.N == len(d.Runners)-1 && !shown && c.e != chosen.e {
			c = chosen
		}
		shown = shown || c.e == chosen.e
		d.Runners[d.N] = Candidate{
			Engine: c.e.Name, Cost: c.cost, Warm: c.warm, Waiting: int(c.e.waiting + c.e.remote.waiting), FreeKV: c.e.capacity - c.e.live(),
		}
		d.N++
	}
	p.totals.Placed[d.Reason]++
}

// available is the most tokens of the prompt that any engine which takes turns holds.
func (p *Placer) available(l *look, chosen *candidate) int {
	most := chosen.warm
	for i := range p.candidates {
		most = max(most, p.candidates[i].warm)
	}
	if chosen.held >= len(p.kept) {
		return most
	}
	deepest := l.deepest
	if deepest < chosen.held { // not looked for yet
		deepest = p.index.depth(p.kept, anyone, chosen.held)
	}
	if deepest == 0 || deepest <= chosen.held {
		return most
	}
	n := 0
	for i := p.index.holders(p.kept[deepest-1].Fingerprint); i != none && n < 2*maxHolders; n++ {
		entry := p.index.entries.at(i)
		if e := p.engines[entry.engine]; e != nil && e.State.takesTurns() && l.m.pool.serves(e) {
			return max(most, p.warmTokens(l, deepest))
		}
		i = entry.same
	}
	return most
}
