package ring

import "github.com/warmring/warmring/ring/prompt"

// How a turn meets a session that only other proxies have seen.

// meet makes a session of what others have told of a key, at its first turn here; none if they have not.
func (p *Placer) meet(key uint64, tail bool, as uint64, named bool, t *Turn) uint32 {
	a := &p.share.away
	at := a.find(key, tail)
	if at == none {
		return none
	}
	told := *a.all.at(at)
	e := p.engineOf(told.engine)
	if told.until <= p.now || e == nil {
		p.dropAway(at)
		return none
	}
	i := p.newSession(as, uint32(t.Seed), e)
	if i == none {
		return none
	}
	p.dropAway(at)
	a.told.Met++
	s := p.sessions.all.at(i)
	p.setContext(i, int(told.tokens))
	s.named, s.told = named, toldAt(told.seen, SizeClass(int(told.tokens)), true)
	return i
}

// meetByPrompt is meet for a turn that is known by its prompt alone. One that only begins (it ends with its first user message)
// is nobody's next turn, however many began alike.
func (p *Placer) meetByPrompt(t *Turn, fresh *resolved) uint32 {
	first := max(t.Prompt.First, 1)
	for n := len(p.chain) - 1; n >= max(first, len(p.chain)-tailWindow); n-- {
		fingerprint := p.chain[n].Fingerprint
		if p.share.away.find(fingerprint, true) == none {
			continue
		}
		p.sequence++
		if i := p.meet(fingerprint, true, join(fresh.ringKey, p.sequence), false, t); i != none {
			s := p.sessions.all.at(i)
			s.side, s.parent = fresh.owner != 0, fresh.owner
			return i
		}
	}
	if len(p.chain) <= first || p.sessions.find(fresh.key) != none {
		return none
	}
	i := p.meet(fresh.key, false, fresh.key, false, t)
	if i != none {
		s := p.sessions.all.at(i)
		s.side, s.parent = fresh.owner != 0, fresh.owner
		s.followed = metByBeginning
	}
	return i
}

// mayBeMet tells that a turn without an id, which goes on with none of the sessions known here, may be the next one of a session
// that was met by its beginning: another turn, a fork's, then took its place. That is asked once for each such session.
func (p *Placer) mayBeMet(t *Turn, key uint64) bool {
	i := p.sessions.find(key)
	if i == none || len(p.chain) <= max(t.Prompt.First, 1) || p.sessions.all.at(i).followed != metByBeginning {
		return false
	}
	p.sessions.all.at(i).followed = 0
	return true
}

// like is the session that a turn without an id may be a fork of, where only other proxies know its history: it began with the same
// words. A turn that only begins is no fork.
func (p *Placer) like(t *Turn, key uint64) uint64 {
	if len(p.chain) <= max(t.Prompt.First, 1) {
		return 0
	}
	if i := p.sessions.find(key); i != none && p.sessions.all.at(i).told.byOthers() || p.share.away.find(key, false) != none {
		return key
	}
	return 0
}

// followLike is the engine of that session; most of what it has there counts as the fork's, too.
func (p *Placer) followLike(l *look, key uint64) *engine { return p.parent(l, key, true) }

// parent is the engine of the session that a new one is said or believed to come from. What the index knows of its history decides
// how much of that is shared. Where others have told of it, a fork is believed to share most of it; shares is false where that is
// not to be expected.
func (p *Placer) parent(l *look, key uint64, shares bool) *engine {
	i, scoped := p.scoped(key, l.t.Seed)
	if i != none {
		s := p.sessions.all.at(i)
		e := p.engineOf(s.engine)
		if e != nil && p.share != nil && shares {
			p.expectHistory(l, e, p.toldWarm(s, e))
		}
		return e
	}
	if p.share == nil {
		return nil
	}
	s := p.share.away.alive(scoped, false, p.now)
	if s == nil {
		return nil
	}
	e := p.engineOf(s.engine)
	if e != nil && shares && s.seen >= e.coldSince {
		p.expectHistory(l, e, int(s.tokens))
	}
	return e
}

// expectHistory counts most of a parent's context as warm for a turn that may be its fork. One that only begins (it ends with its
// first user message) is none: a sub-agent, say, that names who called it.
func (p *Placer) expectHistory(l *look, e *engine, tokens int) {
	if pr := l.t.Prompt; pr != nil && len(pr.Chain) > max(pr.First, 1) && tokens > 0 {
		l.expect(e, min(tokens, l.tokens)/4*3)
	}
}

// taken tells whether a key stands for a session here or elsewhere.
func (p *Placer) taken(key uint64) bool {
	return p.sessions.find(key) != none || p.share != nil && p.share.away.find(key, false) != none
}

// anotherHistory tells that a turn under a client's key goes on with another history than the session of that key, or begins one,
// where the session's own prompts do not tell: a sub-agent that uses its parent's id, a new conversation under the old one's. To take it for
// the session itself would send either of them to the other's engine. i is the session's slot, if it has one.
func (p *Placer) anotherHistory(t *Turn, i uint32, key uint64) bool {
	if len(p.chain) == 0 || t.Continues {
		return false
	}
	if i != none && p.sessions.all.at(i).bytes > 0 {
		return p.takenOver(t, i)
	}
	if side := join(p.beginning(t), key); p.sessions.find(side) != none || p.share.away.alive(side, false, p.now) != nil {
		return true
	}
	var lives *engine
	if i != none {
		lives = p.engineOf(p.sessions.all.at(i).engine)
	} else if s := p.share.away.alive(key, false, p.now); s != nil {
		lives = p.engineOf(s.engine)
	}
	begins := len(p.chain) <= max(t.Prompt.First, 1)
	lost := i != none && p.sessions.all.at(i).turns > 0 // see takenOver
	if lives == nil || !begins && !lost {
		return false // the client's word counts
	}
	here, elsewhere := p.vouched(t.Prompt, lives)
	return !here && (begins || elsewhere) // it begins, and the session did not begin like this, or it is warm where the session is not
}

// What session.followed says where there are other proxies. The first ends with the first token of an answer, the
// first two end with the session's next turn here.
const (
	begunHere      = 1 // by its only turn, which begins a history and has no token of an answer yet, when nobody had told of its key
	contested      = 2 // and before there was one others told that it lives elsewhere
	metByBeginning = 3 // by a turn without an id that began as it did: a fork's, perhaps
)

// uncontested notes that a turn is being answered: what others tell of its session from now on may be of a later one. That its end
// has not been noticed yet says nothing, as its client may know it and have gone on elsewhere.
func (p *Placer) uncontested(c *Charge) {
	if c.session == none {
		return
	}
	if s := p.sessions.all.at(c.session); s.key == c.key && s.followed == begunHere {
		s.followed = 0
	}
}

// takenOver tells that a session's key has been given to another history at another proxy, before either had heard of the other. One
// of the two is what all believe of the key by now; if it is not this one, this one is warm elsewhere and nobody says that it moved.
// A session that was known to others before it moved is not contested, nor is one that came here with a history: it goes where they say.
func (p *Placer) takenOver(t *Turn, i uint32) bool {
	s := p.sessions.all.at(i)
	e := p.engineOf(s.engine)
	if s.followed != contested || e == nil || !e.State.takesTurns() || !contains(p.chain, s.tail, s.bytes) {
		return false
	}
	here, elsewhere := p.vouched(t.Prompt, e)
	if !here && elsewhere {
		p.sessions.setTail(i, 0, 0, false) // the session is the others'
		return true
	}
	return false
}

// vouched tells whether an engine, and whether any other one, is known to hold something of a prompt behind its head, here or by what
// others have told.
func (p *Placer) vouched(pr *prompt.Prompt, e *engine) (here, elsewhere bool) {
	for m := milestonesOf(pr); ; {
		at, _, ok := m.next()
		if !ok {
			return false, elsewhere
		}
		fingerprint := pr.Chain[at].Fingerprint
		if p.index.find(fingerprint, e.slot) != none {
			return true, elsewhere
		}
		if s := p.share.away.alive(milestoneKey(fingerprint), true, p.now); s != nil {
			if s.engine == e.ref() {
				return true, elsewhere
			}
			elsewhere = true
		}
		elsewhere = elsewhere || p.index.holders(fingerprint) != none
	}
}

// tooShort tells that a prompt under the key of a session that only others have seen cannot be its next one: a title or the like.
// A token has 2 to 5 bytes.
func tooShort(t *Turn, s *session) bool {
	return s.told.byOthers() && t.Prompt != nil && t.Prompt.Bytes < int(s.context)
}

// toldWarm is how many tokens of a session others have told to be on its engine, beyond what the index knows.
func (p *Placer) toldWarm(s *session, e *engine) int {
	if !s.told.byOthers() || s.told.at() < e.coldSince {
		return 0
	}
	return int(s.context) + int(s.shared)
}

// known tells whether something is known of a session, here or from others.
func (p *Placer) known(key, seed uint64) bool {
	if key == 0 {
		return false
	}
	i, scoped := p.scoped(key, seed)
	return i != none || p.share.away.alive(scoped, false, p.now) != nil
}

// Missing tells whether a turn goes on with a session of which nothing is known, here or from others: if there are other proxies,
// the news of it may be under way. A turn that only begins (it ends with its first user message) misses nothing, nor does a fork
// of something known. What Missing says holds for the moment; it changes nothing.
func (p *Placer) Missing(t *Turn) bool {
	pr := t.Prompt
	if pr == nil || len(pr.Chain) <= max(pr.First, 1) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return false
	}
	if t.Session != 0 {
		i, key := p.scoped(t.Session, t.Seed)
		return i == none && p.share.away.find(key, false) == none && !p.known(t.Parent, t.Seed) && !p.knowsSome(pr)
	}
	first := max(pr.First, 1)
	if p.taken(join(pr.Chain[first-1].Fingerprint, 0)) {
		return false
	}
	for n := len(pr.Chain) - 1; n >= max(first, len(pr.Chain)-tailWindow); n-- {
		at := pr.Chain[n].Fingerprint
		if p.sessions.findTail(at, 0) != none || p.share.away.find(at, true) != none {
			return false
		}
	}
	return true
}

// Cold estimates the tokens that an engine computes of a turn if it holds nothing of it but the head that all sessions share. It
// changes nothing.
func (p *Placer) Cold(t *Turn) (tokens int) {
	pr := t.Prompt
	if pr == nil {
		return 0
	}
	bytes := pr.Bytes
	if pr.Head > 0 {
		bytes -= int(pr.Chain[pr.Head-1].Bytes)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	perToken := p.opt.DefaultBytesPerToken
	if m := p.models[string(t.Model)]; m != nil {
		perToken = m.bytesPerToken
	}
	return int(float64(max(bytes, 0)) / perToken)
}
