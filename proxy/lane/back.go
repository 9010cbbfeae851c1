package lane

// Preempted says that an abort has taken effect: the request is back in the proxy, and about done of its Arrival.Fresh
// tokens are computed, over all its runs; negative = unknown, which is estimated. It waits in front of the long queue for
// its Admit. A request that is not in prefill is left as it is.
func (c *Controller) Preempted(now int64, id uint64, done int) {
	c.advance(now)
	if i, ok := c.byID[id]; ok {
		c.preempted(i, done)
	}
	c.settle()
}

func (c *Controller) preempted(i uint32, done int) {
	r := &c.all[i]
	if r.class != Long || r.state != prefilling && r.state != preempting {
		return
	}
	ran := c.now - r.began
	if r.state == preempting {
		if c.engine.facts.UnseenAborts {
			if c.unseen = r.ordered; c.forShared(r) {
				c.unseen = 0
			}
			r.ready = r.ordered + min(c.engine.step(), maxUnseen)
		} else {
			c.engine.learnAbort(c.now - r.ordered)
		}
		c.totals.Preempted++
	}
	c.confirmBeside(r)
	lost := int64(0)
	if !c.engine.facts.KeepsStep {
		lost = min(c.engine.step(), ran)
		// The step in flight is computed again. What of it came before the order has earned credit; it should have cost some.
		if r.state == preempting {
			early := max(0, lost-(c.now-r.ordered))
			c.credit -= early + c.earned(early)
			c.totals.LostSeconds += seconds(early)
			c.delay(r, early)
		}
	}
	before := r.fresh
	switch gained := c.engine.prefill(before, r.context); {
	case done >= 0:
		r.fresh = min(max(r.total-done, 1), max(r.total, 1))
		gained -= c.engine.prefill(r.fresh, r.context)
		r.ran = c.engine.prefill(r.total, r.context) - c.engine.prefill(r.fresh, r.context)
		// What ran and left nothing behind is delay, as far as it cannot be an error of the pace.
		if wasted := ran - lost - 2*max(gained, 0); wasted > 0 && r.state == preempting {
			c.credit -= wasted + c.earned(wasted)
			c.totals.LostSeconds += seconds(wasted)
			c.delay(r, wasted)
		}
	case r.slicing.count > 0 || r.slicing.flying:
		most := r.context - r.slicing.cut
		if !r.slicing.flying {
			most = 1
		}
		done := c.engine.tokens(max(ran-lost-c.engine.frontTime(), 0), r.context-before, c.engine.startOf(r))
		r.fresh = max(before-done, most, 1)
		r.ran += max(ran-lost, 0)
	case ran > lost:
		whole := c.engine.prefill(r.total, r.context)
		r.ran += ran - lost
		r.fresh = min(before-1, int(float64(r.total)*float64(c.engine.left(r))/float64(max(whole, 1))))
	}
	r.fresh = min(max(r.fresh, 1), max(r.total, 1))
	// A run that got nothing done must be longer next time.
	if r.fresh >= before && r.stretch < 4 {
		r.stretch++
	} else if r.fresh < before {
		r.stretch = 0
	}
	r.preempted++
	c.judge(r)
	c.land(i)
	c.putBack(i)
}

// putBack takes a request that was sent before into the proxy again.
func (c *Controller) putBack(i uint32) {
	r := &c.all[i]
	r.state, r.since, r.returned = held, c.now, true
	r.slicing.flying = false
	r.order = r.orderNow(&c.engine)
	at := len(c.back)
	for at > 0 && (r.passer || !c.all[c.back[at-1]].passer && c.all[c.back[at-1]].order > r.order) {
		at--
	}
	c.back = append(c.back, none)
	copy(c.back[at+1:], c.back[at:])
	c.back[at] = i
}

// turn is the long request whose turn it is: one that was sent before, unless one that was not is to pass it.
func (c *Controller) turn() uint32 {
	i := c.queue.next()
	if len(c.back) == 0 || i != none && c.passes(i, c.back[0]) {
		return i
	}
	return c.back[0]
}

// passed bounds what others may add to a long request by going between its slices: a quarter of its own prefill.
const passed = 4

// passes says whether a queued request goes before one that is between two slices: it has at most half as much to do, so that
// waiting would cost it far more than it costs the other, and with all that passed the other before it takes at most a quarter
// of the other's own prefill. That bounds the delay whatever comes, where a bound in time would let nobody pass who comes late:
// a prompt of 8k tokens then waits for 30 s. Where the tenant of the long one has more waiting, the others take their turns as
// they would in the queue.
func (c *Controller) passes(i, back uint32) bool {
	q, b := &c.all[i], &c.all[back]
	mine, left := c.engine.left(q), c.engine.left(b)
	if b.slicing.count == 0 || b.immune || 2*mine > left || len(c.back) >= maxInFlight {
		return false
	}
	if b.passedBy+mine <= c.engine.prefill(b.total, b.context)/passed {
		return true
	}
	more, _ := c.queue.of(b.tenant)
	return more > 0 && q.tenant != b.tenant
}

// crowd notes that a long request has come that would wait behind one with far more to do.
func (c *Controller) crowd(r *request) {
	mine := 2 * c.engine.left(r)
	for _, i := range c.flight {
		if x := &c.all[i]; x.remaining(c.now, &c.engine) > mine {
			c.contend()
			return
		}
	}
	if len(c.back) > 0 && c.engine.left(&c.all[c.back[0]]) > mine {
		c.contend()
	}
}

// forShared says whether a long request is taken back for one that may wait for others' work as well.
func (c *Controller) forShared(r *request) bool {
	for _, x := range r.behind {
		if x != none && c.all[x].shared {
			return true
		}
	}
	return false
}

// unheard learns, from a long request that is sent before such a first token came, that the abort took this long at least; what
// comes next says nothing of it.
func (c *Controller) unheard() {
	if took := c.now - c.unseen; c.unseen > 0 && c.interactive() && float64(took) > c.engine.longest {
		c.engine.learnAbort(took)
	}
	c.unseen = 0
}

// hearAbort learns from the first token of an interactive request how long an abort took that was ordered for it, where the
// engine does not tell: all the time since the order but for its own work.
func (c *Controller) hearAbort(x *request) {
	if c.unseen > 0 && x.sent <= c.unseen && !x.shared {
		took := c.now - c.unseen
		c.engine.learnAbort(max(took-c.engine.frontTime()-c.engine.prefill(x.fresh, x.context), took/4))
	}
	c.unseen = 0
}
