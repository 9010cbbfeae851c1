package lane

// settle decides everything that is to be decided now. It is called at the end of every event.
func (c *Controller) settle() {
	c.presume()
	c.expire()
	c.admit()
	c.preempt()
}

// presume guesses the first tokens of unstreamed requests.
func (c *Controller) presume() {
	for c.waiting[wholes].n > 0 && c.presumedAt() <= c.now {
		i := c.waiting[wholes].first
		c.unwait(i)
		c.all[i].state = decoding
		c.decodes++
	}
	for at := 0; at < len(c.flight); at++ {
		i := c.flight[at]
		if r := &c.all[i]; r.presumable() && r.presumedAt(&c.engine) <= c.now {
			c.land(i)
			r.state = decoding
			c.decodes++
			at--
		}
	}
}

// presumedAt is when the oldest unstreamed interactive request is taken to have its first token: once nothing has been in
// its way for longer than its prefill takes, and a step. Behind a long prefill that is never.
func (c *Controller) presumedAt() int64 {
	x := &c.all[c.waiting[wholes].first]
	if len(c.flight) > 0 && c.all[c.flight[0]].seq < x.seq {
		return never
	}
	own := c.engine.prefill(x.fresh, x.context)
	return max(x.sent, c.clear) + own + own/4 + c.engine.frontTime() + c.engine.step()
}

// presumable says whether the end of a long prefill will not be seen.
func (r *request) presumable() bool {
	return r.unstreamed && r.state == prefilling && !r.slicing.flying
}

// presumedAt is when an unstreamed long prefill is taken to be over.
func (r *request) presumedAt(e *engine) int64 { return r.began + r.leg + r.leg/4 + e.step() }

// expire refuses requests that were held for too long before they were first sent.
func (c *Controller) expire() {
	for c.queue.len() > 0 {
		i := c.queue.arrival.first
		r := &c.all[i]
		if r.arrived+int64(c.opt.MaxWait) > c.now {
			return
		}
		id := r.id
		c.drop(i)
		c.totals.Expired++
		c.actions = append(c.actions, Action{Kind: Expire, ID: id, Reason: Waited})
	}
}

// admit sends held requests as far as they may go: those taken back first.
func (c *Controller) admit() {
	c.blocked = none
	for {
		i := c.turn()
		if i == none {
			return
		}
		r := &c.all[i]
		if !c.fits(r) && !c.opt.Off {
			return
		}
		if c.mustWait(r) {
			c.blocked = i
			return
		}
		reason := Quiet
		switch {
		case c.opt.Off:
			reason = Off
		case c.interactive() && r.immune:
			reason = Immune
		case c.interactive():
			reason = Guaranteed
			c.totals.Guaranteed++
		}
		cut := 0
		if !c.opt.Off {
			cut = c.cutFor(r)
		}
		if r.returned {
			c.back = append(c.back[:0], c.back[1:]...)
		} else {
			if len(c.back) > 0 {
				r.passer = true
				c.all[c.back[0]].passedBy += c.engine.left(r)
			}
			c.held -= r.bytes
			c.queue.take(i)
		}
		c.send(i, cut)
		c.totals.Admitted++
		c.actions = append(c.actions, Action{Kind: Admit, ID: r.id, Reason: reason, Tokens: cut})
	}
}

// fits says whether the budget allows one more long prefill.
func (c *Controller) fits(r *request) bool {
	switch {
	case len(c.flight) == 0:
		return true
	case c.opt.Budget == 0 || len(c.flight) >= maxInFlight:
		return false
	}
	sum := r.fresh
	for _, i := range c.flight {
		sum += c.all[i].fresh
	}
	return sum <= c.opt.Budget
}

// interactive says whether any interactive request waits for its first token.
func (c *Controller) interactive() bool { return c.waiting[streams].n+c.waiting[wholes].n > 0 }

// pause says until when a long request that was taken back lets answers run that it would freeze: Target longer than those
// for whom it was taken back wait for their first token. Most short answers are over by then.
func (c *Controller) pause(r *request) int64 {
	if !c.engine.facts.FreezesDecodes || c.decodes == 0 || r.preempted == 0 || r.slicing.count > 0 {
		return 0
	}
	return max(c.spoke, r.since) + int64(c.opt.Target)
}

// maxUnseen bounds how long a request is kept from its engine because an abort may not have taken effect.
const maxUnseen = int64(2e9)

// stopping says whether the run before may still be in the engine: where an abort does not show, that is until an interactive
// request has its first token, or for a step. Sent again in that time the request would live twice.
func (c *Controller) stopping(r *request) bool { return c.now < r.ready && c.spoke < r.ordered }

// mustWait says whether a long request that fits the budget has to let interactive ones go first.
func (c *Controller) mustWait(r *request) bool {
	if c.stopping(r) && !c.opt.Off {
		return true
	}
	return (c.interactive() || c.now < c.pause(r)) && c.credit > 0 && !r.immune && !c.opt.Off
}

// preempt orders aborts, and notes when the next one may become possible.
func (c *Controller) preempt() {
	c.wake = never
	if c.opt.Off || !c.engine.canPreempt() {
		return
	}
	for _, i := range c.flight {
		r := &c.all[i]
		if r.state != prefilling || r.immune || r.noPreempt || r.behind == [2]uint32{none, none} {
			continue
		}
		at, reason := c.preemptAt(r)
		if at > c.now {
			c.wake = min(c.wake, at)
			continue
		}
		if reason == Overdue {
			c.engine.besides = 0 // what was observed no longer holds
		} else if at = c.trial(r); at > c.now {
			c.wake = min(c.wake, at)
			continue
		}
		r.state, r.ordered = preempting, c.now
		c.totals.Ordered++
		c.actions = append(c.actions, Action{Kind: Preempt, ID: r.id, Reason: reason})
	}
}

// preemptAt is the earliest time at which a long prefill with interactive requests behind it is to be taken back.
func (c *Controller) preemptAt(r *request) (int64, Reason) {
	ran, reason := c.now-r.began, Blocking
	least := int64(c.opt.Target) + c.engine.abortTime()

	var at int64
	if r.slicing.brief {
		// A slice is over soon. One that takes far longer than it was meant to is a prefill like any.
		return c.affordable(max(r.began + max(3*r.leg+least, c.engine.minRun(c.opt.MinRunSteps)<<r.stretch))), reason
	}
	// It must win: what it spares is more than what it takes.
	if r.remaining(c.now, &c.engine) <= least {
		if r.presumable() {
			return never, reason
		}
		at = r.began + max(8*least, r.leg) + 8 // then it is so late that its end is anybody's guess
		if at <= c.now {
			at = never
		}
		return at, reason
	}
	if r.presumable() && ran > r.leg*3/4 {
		return never, reason // it may be decoding already, which an abort would throw away
	}
	// Where the engine's own chunking serves interactive requests beside this one, only when it fails to.
	if beside := c.engine.besideTime(); beside > 0 && beside <= least {
		oldest := never
		for _, x := range r.behind {
			if x != none {
				oldest = min(oldest, c.all[x].sent)
			}
		}
		at, reason = oldest+2*max(beside, int64(c.opt.Target)), Overdue
	}
	at = max(at, r.began+c.engine.minRun(c.opt.MinRunSteps)<<r.stretch)
	return c.affordable(at), reason
}

// affordable is when, from a time on, enough credit is there to let interactive requests run at all; running earns it.
func (c *Controller) affordable(at int64) int64 {
	if lack := c.grace()/2 - c.credit; c.opt.Share >= 1 {
		return never
	} else if lack > 0 {
		at = max(at, c.now+int64(float64(lack)/c.gain())+1)
	}
	return at
}

// trial puts a few preemptions off by Target, to see whether the engine serves interactive requests beside a long prefill
// all by itself: were they always taken back at once, it would never show. It returns when this one is due.
func (c *Controller) trial(r *request) int64 {
	if c.engine.besideTime() > 0 {
		return c.now
	}
	if r.trial == 0 {
		c.engine.chances++
		r.trial = c.now
		if c.engine.chances <= trials || c.engine.chances%trialEvery == 0 {
			r.trial += int64(c.opt.Target)
		}
	}
	return r.trial
}

// Next is when Tick is wanted.
func (c *Controller) Next() (at int64, ok bool) {
	at = c.wake
	if c.queue.len() > 0 {
		at = min(at, c.all[c.queue.arrival.first].arrived+int64(c.opt.MaxWait))
	}
	if c.blocked != none {
		r := &c.all[c.blocked]
		until := r.bound - r.extra
		if !c.running() {
			until = min(until, c.credit)
		}
		if !c.interactive() {
			until = min(until, c.pause(r)-c.now)
		}
		if c.stopping(r) {
			until = max(until, r.ready-c.now)
		}
		at = min(at, c.now+max(until, 1))
	}
	if c.waiting[wholes].n > 0 {
		at = min(at, c.presumedAt())
	}
	for _, i := range c.flight {
		if r := &c.all[i]; r.presumable() {
			at = min(at, r.presumedAt(&c.engine))
		}
	}
	return at, at != never
}
