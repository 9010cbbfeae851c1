package ring

// Charge is what one request holds against its engine: its fresh tokens until the first token, then a decode slot, and the
// context tokens of a turn without a session. It is taken by Place and given back by Release, exactly once on every path;
// a Charge is never used again, so a late second Release is harmless.
type Charge struct {
	p       *Placer
	e       *engine
	m       *model
	session uint32
	key     uint64 // of the session, to tell it from a later one in the same slot

	start    int64 // when the request went out
	elapsed  int64 // until its first token; 0 = not seen
	arrivals uint64
	before   int64  // when what was believed warm had been used last
	deepest  uint64 // fingerprint of the last kept point
	added    int    // kept points that the index did not have before

	fresh     int   // tokens charged
	tokens    int   // of the prompt, estimated
	seen      int   // tokens that the index said were held
	computed  int   // tokens that earlier runs of this request are known to have computed, warm ones included
	ran       int   // tokens of runs that have not taught the engine's speed yet
	ranFor    int64 // ns that they took
	bytes     int   // of the prompt
	held      int   // context tokens charged to the engine directly
	alone     bool
	continues bool
	stage     stage
}

type stage uint8

const (
	waiting stage = iota
	running
	released
)

// maxBeside is how many answers may be decoded beside a prefill that teaches the engine's speed: they slow it down.
const maxBeside = 2

// chargeBlock is how many charges are allocated at once. They are not reused: a pointer to one stays good forever.
const chargeBlock = 64

// Outcome is what the engine's answer told.
type Outcome struct {
	PromptTokens int  // of the whole prompt; 0 or less = unknown
	CachedTokens int  // of these, how many it had cached; negative = unknown
	OutputTokens int  // 0 or less = unknown
	Prefilled    bool // the first token was seen
	Bypassed     bool // it had its whole prompt computed whatever was cached: what was cached says nothing
	Failed       bool // the engine never took the request: nothing of it is cached there
}

// charge records a decision: the charge itself, what the engine's cache will hold, and the session.
func (p *Placer) charge(l *look, d *Decision, c *candidate, r resolved) *Charge {
	e := c.e
	if len(p.charges) == 0 {
		p.charges = make([]Charge, chargeBlock)
	}
	ch := &p.charges[0]
	p.charges = p.charges[1:]

	e.arrivals++
	e.placed++
	*ch = Charge{
		p: p, e: e, m: l.m, start: p.now, arrivals: e.arrivals, alone: e.queued+e.remote.queued == 0 && e.running+e.remote.running <= maxBeside,
		fresh: l.tokens - c.warm, tokens: l.tokens, seen: c.seen, continues: l.t.Continues,
	}
	e.waiting += int64(ch.fresh)
	e.queued++
	if len(p.chain) > 0 {
		ch.bytes = l.t.Prompt.Bytes
	}
	if n := len(p.kept); n > 0 {
		ch.deepest = p.kept[n-1].Fingerprint
		ch.added, ch.before = p.index.touch(e.slot, p.kept, c.held, p.now, l.m.bytesPerToken)
	}
	p.record(l, d, ch, r)
	if ch.session == none {
		ch.held = l.tokens
		e.held += int64(ch.held)
	}
	if p.share != nil {
		p.tell(l, d, ch, r)
	}
	return ch
}

// record notes the turn in its session, which may be new.
func (p *Placer) record(l *look, d *Decision, ch *Charge, r resolved) {
	i := r.session
	if i == none {
		if r.key == 0 {
			return
		}
		if i = p.newSession(r.key, uint32(l.t.Seed), ch.e); i == none {
			d.Session = r.key
			return
		}
		s := p.sessions.all.at(i)
		s.parent, s.side, s.named = l.t.Parent, r.owner != 0, !r.tailed
		if s.side {
			s.parent = r.owner
		}
		p.totals.Sessions++
		if p.share != nil && s.named && len(p.chain) > 0 && len(p.chain) <= max(l.t.Prompt.First, 1) {
			s.followed = begunHere
		}
	} else {
		p.seen(i)
	}
	s := p.sessions.all.at(i)
	if r.session == none || s.engine != ch.e.ref() {
		s.shared = uint32(ch.seen)
	}
	p.bind(i, ch.e)
	if len(l.t.Exclude) == 0 || s.turns == 0 {
		s.turns++
	}
	if len(p.chain) > 0 && !l.t.Continues {
		p.setContext(i, max(0, l.tokens-int(s.shared)))
		end := tail(l.t.Prompt)
		p.sessions.setTail(i, end.Fingerprint, int(end.Bytes), r.tailed)
		if p.keptHead > 0 {
			p.sessions.setHead(i, p.kept[p.keptHead-1].Fingerprint)
		} else {
			p.sessions.setHead(i, 0)
		}
	}
	s.inFlight++
	ch.session, ch.key = i, s.key
	d.Session, d.Turn = s.key, int(s.turns)
}

// Restart says that the request goes out only now (it was held back, or taken back and is sent again), so that the time
// until its first token is not taken for the engine's.
func (c *Charge) Restart(now int64) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.stage == waiting {
		c.start = now
		c.alone = c.alone && c.e.arrivals == c.arrivals
	}
}

// FirstToken says that the prefill is done: the fresh tokens are off the engine's account and a decode slot is on it.
func (c *Charge) FirstToken(now int64) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.stage != waiting {
		return
	}
	c.elapsed = now - c.start
	c.alone = c.alone && c.e.arrivals == c.arrivals
	c.toRunning()
}

func (c *Charge) toRunning() {
	c.stage = running
	c.e.waiting -= int64(c.fresh)
	c.e.queued--
	c.e.running++
	if c.p.share != nil {
		c.p.uncontested(c)
		c.p.tellLoad(c)
	}
}

// Release gives back what is still charged and learns from the outcome. It returns false if the charge was released before.
func (c *Charge) Release(now int64, o Outcome) bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.stage == released {
		return false
	}
	if c.stage == waiting {
		c.toRunning()
	}
	c.stage = released
	c.e.running--
	c.e.held -= int64(c.held)
	p.advance(now)

	if c.session != none {
		p.sessions.all.at(c.session).inFlight--
		if !o.Failed {
			p.seen(c.session)
			if o.PromptTokens > 0 {
				c.settle(o)
			}
		}
	}
	if p.engines[c.e.slot] != c.e {
		return true // removed meanwhile: nothing more to learn
	}
	if o.Failed {
		c.undo()
		return true
	}
	c.learn(o)
	return true
}

// settle corrects the session's context by what the answer told.
func (c *Charge) settle(o Outcome) {
	s := c.p.sessions.all.at(c.session)
	if s.inFlight == 0 && s.engine == c.e.ref() {
		c.p.setContext(c.session, max(0, o.PromptTokens+max(o.OutputTokens, 0)-int(s.shared)))
	}
}
