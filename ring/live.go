package ring

// What binds sessions to engines: every change of a session's engine, context or activity goes through here, so that the
// engines' context gauges always equal the sum over their active sessions.

// engineOf returns the engine that a session is bound to, nil if it is gone.
func (p *Placer) engineOf(r ref) *engine {
	slot := int(r & 0xffff)
	if slot >= len(p.engines) || p.engines[slot] == nil || p.engines[slot].generation != uint16(r>>16) {
		return nil
	}
	return p.engines[slot]
}

// newSession records a session, forgetting the longest idle one if there is no room.
func (p *Placer) newSession(key uint64, scope uint32, e *engine) uint32 {
	t := &p.sessions
	if t.all.len() >= p.opt.MaxSessions {
		i := t.idle.oldest
		for at := t.active.oldest; i == none && at != none; at = t.all.at(at).newer {
			if t.all.at(at).inFlight == 0 {
				i = at
			}
		}
		if i == none {
			return none // all have a request in flight
		}
		p.dropSession(i)
		t.Shed++
	}
	i := t.all.take()
	s := t.all.at(i)
	s.key, s.scope, s.seen, s.active, s.engine = key, scope, p.now, true, e.ref()
	e.sessions++
	t.byKey.insert(i)
	t.push(&t.active, i)
	return i
}

// dropSession forgets a session.
func (p *Placer) dropSession(i uint32) {
	t := &p.sessions
	s := t.all.at(i)
	if s.active {
		p.deactivate(i)
	}
	t.unlink(&t.idle, i)
	if e := p.engineOf(s.engine); e != nil {
		e.sessions--
	}
	t.byKey.remove(i)
	if s.tailed {
		t.byTail.remove(i)
	}
	t.all.give(i)
}

// deactivate takes a session's context off its engine.
func (p *Placer) deactivate(i uint32) {
	t := &p.sessions
	s := t.all.at(i)
	if e := p.engineOf(s.engine); e != nil {
		e.context -= int64(s.context)
	}
	t.setHead(i, 0)
	t.unlink(&t.active, i)
	s.active = false
	t.push(&t.idle, i)
}

// seen makes a session the most recently used one.
func (p *Placer) seen(i uint32) {
	t := &p.sessions
	s := t.all.at(i)
	s.seen = p.now
	t.unlink(t.listOf(s), i)
	if !s.active {
		s.active = true
		if e := p.engineOf(s.engine); e != nil {
			e.context += int64(s.context)
		}
	}
	t.push(&t.active, i)
}

// bind moves an active session to an engine.
func (p *Placer) bind(i uint32, e *engine) {
	s := p.sessions.all.at(i)
	if s.engine == e.ref() {
		return
	}
	if old := p.engineOf(s.engine); old != nil {
		old.context -= int64(s.context)
		old.sessions--
	}
	s.engine = e.ref()
	e.context += int64(s.context)
	e.sessions++
}

// setContext records how many tokens an active session keeps on its engine.
func (p *Placer) setContext(i uint32, tokens int) {
	s := p.sessions.all.at(i)
	if e := p.engineOf(s.engine); e != nil {
		e.context += int64(tokens) - int64(s.context)
	}
	s.context = uint32(tokens)
}

// agingSteps bounds what one call does for the passing of time. Each decision makes at most one session, so this keeps up.
const agingSteps = 16

// advance moves the clock, which never goes back, and lets sessions become idle and be forgotten.
func (p *Placer) advance(now int64) {
	p.now = max(p.now, now)
	t := &p.sessions
	for range agingSteps {
		i := t.active.oldest
		if i == none || t.all.at(i).seen > p.now-int64(p.opt.Active) {
			break
		}
		if t.all.at(i).inFlight > 0 {
			p.seen(i) // a turn that runs is activity
			continue
		}
		p.deactivate(i)
	}
	for range agingSteps {
		i := t.idle.oldest
		if i == none || t.all.at(i).seen > p.now-int64(p.opt.SessionIdle) {
			break
		}
		p.dropSession(i)
		t.Expired++
	}
	if p.share != nil {
		p.ageAway()
	}
}
