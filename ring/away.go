package ring

// away is what other proxies have told: sessions that have had no turn here yet, and what was charged elsewhere. A session is
// either away or in the table of sessions, never in both, so that its context counts once against its engine's memory.
type away struct {
	all    slab[stranger]
	byKey  table
	filter *awayFilter
	active awayList // their context counts
	idle   awayList
	told   AwayTotals
}

// stranger is a session (or the tail of one) that only others have seen. 56 bytes.
type stranger struct {
	key          uint64
	seen         int64 // time of its last turn, as far as was told
	until        int64 // when it is forgotten
	engine       ref
	tokens       uint32
	next         uint32
	older, newer uint32
	tail         bool
	active       bool
}

type awayList struct{ newest, oldest uint32 }

// AwayTotals counts what came from other proxies.
type AwayTotals struct {
	Taken   uint64 `json:"taken"`   // bindings taken in
	Rebound uint64 `json:"rebound"` // of these, sessions known here that live elsewhere now
	Unknown uint64 `json:"unknown"` // of engines that are not configured here
	Shed    uint64 `json:"shed"`    // forgotten because of the bound
	Met     uint64 `json:"met"`     // sessions whose first turn here found where they live
	Dropped uint64 `json:"dropped"` // own news that nobody collected in time
}

// AwayView is the state of what others told.
type AwayView struct {
	Sessions int        `json:"sessions"`
	Totals   AwayTotals `json:"totals"`
}

func (a *away) init() {
	a.filter = new(awayFilter)
	a.byKey = newTable(
		func(i uint32) uint64 { return mix(a.all.at(i).key) },
		func(i uint32) *uint32 { return &a.all.at(i).next })
}

func (a *away) find(key uint64, tail bool) uint32 {
	hash := mix(key)
	if !a.filter.perhaps(hash) {
		return none
	}
	for i := a.byKey.first(hash); i != none; i = a.all.at(i).next {
		if s := a.all.at(i); s.key == key && s.tail == tail {
			return i
		}
	}
	return none
}

// alive returns what others have told of a key, nil if they have not or it has ended.
func (a *away) alive(key uint64, tail bool, now int64) *stranger {
	if i := a.find(key, tail); i != none {
		if s := a.all.at(i); s.until > now {
			return s
		}
	}
	return nil
}

// remoteLoad is what other proxies have on an engine. The zero value is also what is known when they are silent: nothing.
type remoteLoad struct {
	waiting int64
	queued  int
	running int
	context int64 // of active sessions that have had no turn here
}

// Import takes in bindings that other proxies made. The caller decides which news is newer than which: what comes here counts.
// Bindings to engines that are not known here only end what was believed before.
func (p *Placer) Import(now int64, list []Binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return
	}
	p.advance(now)
	for i := range list {
		if _, own := p.share.pending[bindingID{list[i].Key, list[i].Tail}]; own {
			continue // what was placed here meanwhile will be told as newer than this, and all will follow it
		}
		p.take(&list[i])
	}
}

func (p *Placer) take(b *Binding) {
	a := &p.share.away
	e := p.engineByID(b.Engine)
	if e == nil {
		a.told.Unknown++
		if i := a.find(b.Key, b.Tail); i != none {
			p.dropAway(i)
		}
		return
	}
	a.told.Taken++
	life := p.toldLife()
	if b.Tail {
		life = min(tailLife, p.opt.SessionIdle)
	}
	seen := p.now - int64(max(life-b.Life, 0))
	if !b.Tail {
		if i := p.sessions.find(b.Key); i != none {
			p.rebind(i, e, b, seen)
			return
		}
	}
	i := a.find(b.Key, b.Tail)
	if i != none {
		p.dropAway(i)
	}
	for a.all.len() >= max(p.opt.MaxSessions/4, 16) {
		oldest := a.idle.oldest
		if oldest == none {
			oldest = a.active.oldest
		}
		p.dropAway(oldest)
		a.told.Shed++
	}
	i = a.all.take()
	s := a.all.at(i)
	*s = stranger{key: b.Key, seen: seen, until: p.now + int64(b.Life), engine: e.ref(), tokens: uint32(max(b.Tokens, 0)), tail: b.Tail}
	s.active = !b.Tail && seen > p.now-int64(p.opt.Active)
	a.byKey.insert(i)
	a.filter.add(mix(b.Key))
	a.push(i)
	if s.active {
		e.remote.context += int64(s.tokens)
	}
}

// rebind follows what another proxy told of a session that is known here.
func (p *Placer) rebind(i uint32, e *engine, b *Binding, seen int64) {
	s := p.sessions.all.at(i)
	moved := s.engine != e.ref()
	if seen > s.seen {
		p.seen(i)
	}
	if moved {
		p.share.away.told.Rebound++
		if s.followed == begunHere {
			s.followed = contested // its first turn has no answer yet: this is no later one
		}
		if s.active {
			p.bind(i, e)
		} else {
			if old := p.engineOf(s.engine); old != nil {
				old.sessions--
			}
			s.engine = e.ref()
			e.sessions++
		}
		s.shared, s.short = 0, 0
	}
	if tokens := max(b.Tokens-int(s.shared), 0); moved || tokens > int(s.context) {
		if s.active {
			p.setContext(i, tokens)
		} else {
			s.context = uint32(tokens)
		}
		s.told = toldAt(p.now, SizeClass(b.Tokens), true)
	}
}

// SetRemote says what the other proxies have charged to engines, summed up: it replaces what was said of these engines before.
// Sums of silent proxies must be left out, not kept.
func (p *Placer) SetRemote(loads []Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return
	}
	for _, l := range loads {
		if e := p.engineByID(l.Engine); e != nil {
			e.remote.waiting, e.remote.queued, e.remote.running = max(l.Waiting, 0), max(l.Queued, 0), max(l.Running, 0)
		}
	}
}

// Away returns the state of what others told.
func (p *Placer) Away() AwayView {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return AwayView{}
	}
	v := AwayView{Sessions: p.share.away.all.len(), Totals: p.share.away.told}
	v.Totals.Dropped = p.share.shed
	return v
}

// ageAway lets strangers become idle and be forgotten.
func (p *Placer) ageAway() {
	a := &p.share.away
	for range agingSteps {
		i := a.active.oldest
		if i == none || a.all.at(i).seen > p.now-int64(p.opt.Active) {
			break
		}
		p.quieten(i)
		a.push(i)
	}
	for range agingSteps {
		i := a.idle.oldest
		if i == none || a.all.at(i).until > p.now {
			break
		}
		p.dropAway(i)
	}
}

// quieten takes a stranger's context off its engine and out of its list.
func (p *Placer) quieten(i uint32) {
	a := &p.share.away
	s := a.all.at(i)
	a.unlink(i)
	if s.active {
		s.active = false
		if e := p.engineOf(s.engine); e != nil {
			e.remote.context -= int64(s.tokens)
		}
	}
}

func (p *Placer) dropAway(i uint32) {
	a := &p.share.away
	p.quieten(i)
	a.byKey.remove(i)
	a.filter.remove(mix(a.all.at(i).key))
	a.all.give(i)
}

func (a *away) listOf(s *stranger) *awayList {
	if s.active {
		return &a.active
	}
	return &a.idle
}

func (a *away) push(i uint32) {
	s := a.all.at(i)
	l := a.listOf(s)
	s.newer, s.older = none, l.newest
	if l.newest != none {
		a.all.at(l.newest).newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
}

func (a *away) unlink(i uint32) {
	s := a.all.at(i)
	l := a.listOf(s)
	if s.newer != none {
		a.all.at(s.newer).older = s.older
	} else {
		l.newest = s.older
	}
	if s.older != none {
		a.all.at(s.older).newer = s.newer
	} else {
		l.oldest = s.newer
	}
	s.newer, s.older = none, none
}
