package lane

// add makes a request.
func (c *Controller) add(a Arrival, class Class, fresh int) uint32 {
	var i uint32
	if n := len(c.spare); n > 0 {
		i, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		i = uint32(len(c.all))
		c.all = append(c.all, request{})
	}
	c.seq++
	c.all[i] = request{
		id: a.ID, tenant: a.Tenant, class: class, unstreamed: a.Unstreamed, arrived: c.now, total: fresh, fresh: fresh,
		noPreempt: a.NoPreempt, noSlices: a.NoSlices, shared: a.Shared, bytes: int64(max(a.Bytes, 0)),
		context: max(a.Context, fresh), seq: c.seq, behind: [2]uint32{none, none}, prev: none, next: none, slot: none,
	}
	c.byID[a.ID] = i
	return i
}

// send notes that a request goes to the engine now: so many tokens of its prompt, or all of it with 0.
func (c *Controller) send(i uint32, cut int) {
	r := &c.all[i]
	if r.state == held {
		r.heldFor += c.now - r.since
		c.totals.Long.HeldSeconds += seconds(c.now - r.since)
	}
	c.seq++
	r.state, r.sent, r.began, r.seq = prefilling, c.now, c.now, c.seq
	if r.class == Long {
		r.trial = 0
		c.unheard()
		c.begin(r, cut)
		c.flight = append(c.flight, i)
		return
	}
	kind := kindOf(r)
	r.alone = len(c.flight) == 0 && !c.interactive() && !r.shared
	c.waiting[kind].push(c.all, i)
	for _, l := range c.flight {
		if f := &c.all[l]; f.behind[kind] == none {
			f.behind[kind] = i
		}
	}
}

func kindOf(r *request) int {
	if r.unstreamed {
		return wholes
	}
	return streams
}

// served learns from an interactive request's first token what it meant to the long prefills in flight.
func (c *Controller) served(i uint32) {
	x := &c.all[i]
	for _, l := range c.flight {
		f := &c.all[l]
		if f.state != prefilling {
			continue
		}
		if f.seq > x.seq {
			f.began = c.now // it stood behind this one in the engine's queue
		} else if !x.shared && !f.unstreamed && f.besideAt == 0 && x.sent-f.sent >= min(f.leg/2, 2*int64(c.opt.Target)) {
			// One that came sooner may have been served while the engine's front end still read the long prompt.
			f.besideAt, f.beside = c.now, c.now-x.sent
		}
	}
}

// confirmBeside decides, a step or more after an interactive request was served beside a long prefill, that it truly was:
// in both common engines it may join the last step of the long one, and then their first tokens come together.
func (c *Controller) confirmBeside(r *request) {
	if r.besideAt == 0 {
		return
	}
	if c.now-r.besideAt >= c.engine.step() {
		c.engine.learnBeside(r.beside)
	}
	r.besideAt = 0
}

// unwait takes an interactive request out of those that wait for a first token.
func (c *Controller) unwait(i uint32) {
	r := &c.all[i]
	kind := kindOf(r)
	for _, l := range c.flight {
		if f := &c.all[l]; f.behind[kind] == i {
			f.behind[kind] = r.next
		}
	}
	c.waiting[kind].remove(c.all, i)
}

// land takes a long request out of those in prefill.
func (c *Controller) land(i uint32) {
	for at, l := range c.flight {
		if l == i {
			c.flight = append(c.flight[:at], c.flight[at+1:]...)
			break
		}
	}
	c.all[i].behind = [2]uint32{none, none}
	if len(c.flight) == 0 {
		c.clear = c.now
	}
}

// leaveQueue takes a held request out of the queue it is in.
func (c *Controller) leaveQueue(i uint32) {
	if r := &c.all[i]; !r.returned {
		c.held -= r.bytes
		c.queue.remove(i)
		return
	}
	for at, b := range c.back {
		if b == i {
			c.back = append(c.back[:at], c.back[at+1:]...)
			return
		}
	}
}

// drop forgets a request wherever it is.
func (c *Controller) drop(i uint32) {
	r := &c.all[i]
	switch r.state {
	case held:
		c.leaveQueue(i)
		c.totals.Long.HeldSeconds += seconds(c.now - r.since)
	case prefilling, preempting:
		if r.class == Interactive {
			c.unwait(i)
		} else {
			c.land(i)
		}
	case decoding:
		c.decodes--
	}
	c.void(r.id)
	if c.blocked == i {
		c.blocked = none
	}
	delete(c.byID, r.id)
	*r = request{prev: none, next: none}
	c.spare = append(c.spare, i)
}

// void takes back actions that the caller has not fetched yet.
func (c *Controller) void(id uint64) {
	for at := 0; at < len(c.actions); at++ {
		if c.actions[at].ID == id && c.actions[at].Kind != Expire {
			c.actions = append(c.actions[:at], c.actions[at+1:]...)
			at--
		}
	}
}
