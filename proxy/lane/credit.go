package lane

// The guarantee. While long work is there, time passes in one of two ways: a long prefill runs, or interactive requests keep
// it waiting (held back, or taken back). Running earns credit, waiting spends it, and without credit nothing is held back or
// taken back:
//
//	running dt:  credit += dt · (1−Share)/Share, at most ceiling
//	waiting dt:  credit −= dt
//
// Over any time in which long work is there, waiting ≤ ceiling + running·(1−Share)/Share, so the long lane's part of it
// tends to Share or more however interactive requests arrive.

// grace is the credit of a lane that was empty: how long a long request that comes alone may be held back before it has run.
func (c *Controller) grace() int64 {
	if c.opt.Share >= 1 {
		return 0
	}
	return int64(c.opt.Target)
}

// ceiling bounds the credit, and so the longest pause at a stretch.
func (c *Controller) ceiling() int64 { return 4 * max(c.grace(), c.engine.step()) }

// gain is the credit per time of running.
func (c *Controller) gain() float64 { return (1 - c.opt.Share) / c.opt.Share }

func (c *Controller) earned(ran int64) int64 { return int64(float64(ran) * c.gain()) }

// extraBound is the delay after which a long request is immune, by what is known of its own time now: an estimate that was
// too low must not make it immune too soon.
func (c *Controller) extraBound(r *request) int64 {
	if c.opt.MaxExtraDelay > 0 {
		return int64(c.opt.MaxExtraDelay)
	}
	ran := r.ran
	if r.state == prefilling || r.state == preempting {
		ran += max(c.now-r.began, 0)
	}
	own := c.earned(max(c.engine.prefill(r.total, r.context), ran))
	return min(max(own, int64(minExtraBound)), int64(maxExtraBound))
}

// running says whether the engine works on a long prefill whose work is kept.
func (c *Controller) running() bool {
	for _, i := range c.flight {
		if c.all[i].state == prefilling || c.engine.facts.KeepsStep {
			return true
		}
	}
	return false
}

// advance moves the clock and accounts for the time since the last event.
func (c *Controller) advance(now int64) {
	dt := now - c.now
	if dt <= 0 {
		return
	}
	c.now = now
	if len(c.flight) == 0 && c.blocked == none {
		return
	}
	running := c.running()
	if running {
		c.credit = min(c.credit+c.earned(dt), c.ceiling())
		c.totals.RunSeconds += seconds(dt)
	} else {
		c.credit -= dt
		c.totals.BlockedSeconds += seconds(dt)
	}
	if c.blocked != none {
		c.delay(&c.all[c.blocked], dt)
	}
	for _, i := range c.flight {
		if r := &c.all[i]; r.state == preempting && !c.engine.facts.KeepsStep {
			c.delay(r, dt)
		} else if r.besideAt != 0 && now-r.besideAt >= c.engine.step() {
			c.confirmBeside(r)
		}
	}
}

// delay adds to what interactive requests cost a long one.
func (c *Controller) delay(r *request, ns int64) {
	r.extra += ns
	c.totals.Long.ExtraSeconds += seconds(ns)
	c.judge(r)
}

// judge makes a request immune that was delayed or preempted enough.
func (c *Controller) judge(r *request) {
	r.bound = c.extraBound(r)
	if !r.immune && (r.extra >= r.bound || int(r.preempted) >= c.opt.MaxPreemptions) {
		r.immune = true
		c.totals.Immune++
	}
}
