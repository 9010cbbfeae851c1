package lane

// Controller is the two lanes of one engine. After any call but Actions, View, Status, Held and Next, the caller does what
// Actions returns, and calls Tick at the time that Next names.
type Controller struct {
	opt    Options
	engine engine
	now    int64
	seq    uint64

	all   []request // slab
	spare []uint32
	byID  map[uint64]uint32

	waiting [2]list  // interactive requests without their first token: streamed, unstreamed
	queue   queue    // long ones, never sent yet
	back    []uint32 // preempted ones, in front of the queue, oldest arrival first
	flight  []uint32 // long ones in prefill, by seq; they hold the budget

	credit  int64  // ns that the long lane may still be kept waiting
	blocked uint32 // the long request that waits for interactive ones, and for nothing else
	clear   int64  // since when no long prefill has been in flight
	spoke   int64  // last first token of an interactive request
	unseen  int64  // when an abort was ordered whose effect will show at the next first token; 0 = none
	wake    int64  // the next time at which a preemption may become possible
	actions []Action
	totals  Totals
	decodes int
}

const (
	never   = int64(1<<63 - 1)
	streams = 0
	wholes  = 1
)

// New returns a Controller for one engine, of which nothing is known yet.
func New(opt Options) *Controller {
	c := &Controller{opt: opt.withDefaults(), byID: map[uint64]uint32{}, waiting: [2]list{newList(), newList()}, blocked: none, wake: never}
	c.queue = newQueue(&c.all)
	return c
}

// SetOptions changes the options; requests held or in flight keep their class and go by the new rules from now on.
func (c *Controller) SetOptions(now int64, opt Options) {
	c.advance(now)
	c.opt = opt.withDefaults()
	c.settle()
}

// SetFacts says what is known of the engine. It takes effect with the next call that has a time.
func (c *Controller) SetFacts(f Facts) { c.engine.facts = f }

// Forget drops what was observed of the engine, which has restarted, maybe as another.
func (c *Controller) Forget() { c.engine = engine{facts: c.engine.facts} }

// Border is how many fresh tokens make a request long at present.
func (c *Controller) Border() int { return c.engine.border(&c.opt) }

// Arrive takes a new request. With Go it counts as sent at now. An ID that is still known counts as having left.
func (c *Controller) Arrive(now int64, a Arrival) Verdict {
	c.advance(now)
	if i, ok := c.byID[a.ID]; ok {
		c.drop(i)
	}
	if c.opt.Off {
		c.totals.Passed++
		c.settle()
		return Go
	}
	fresh := max(a.Fresh, 0)
	if fresh < c.Border() {
		c.totals.Interactive.Arrived++
		i := c.add(a, Interactive, fresh)
		c.send(i)
		c.settle()
		return Go
	}
	c.totals.Long.Arrived++
	if len(c.flight) == 0 && len(c.back) == 0 && c.queue.len() == 0 {
		c.credit = c.grace()
	}
	if c.opt.MaxHeld <= c.queue.len() || c.opt.MaxHeldPerTenant <= c.queue.of(a.Tenant) {
		c.totals.Full++
		c.settle()
		return Full
	}
	i := c.add(a, Long, fresh)
	r := &c.all[i]
	r.bound = c.extraBound(r)
	r.order = now + patience*c.engine.prefill(r.fresh, r.context)
	r.state, r.since = held, c.now
	if len(c.back) == 0 && c.queue.len() == 0 && c.fits(r) && !c.mustWait(r) {
		c.send(i)
		c.settle()
		return Go
	}
	c.totals.Held++
	c.queue.push(i, a.Tenant)
	c.settle()
	return Held
}

// FirstToken says that a request's prefill is done. That is its commit point: it is never preempted afterwards, and an abort
// that was ordered came too late.
func (c *Controller) FirstToken(now int64, id uint64) {
	c.advance(now)
	if i, ok := c.byID[id]; ok {
		c.firstToken(i)
	}
	c.settle()
}

// Committed says that the engine answered in the very moment of the abort: the answer wins. It is the same as FirstToken.
func (c *Controller) Committed(now int64, id uint64) { c.FirstToken(now, id) }

func (c *Controller) firstToken(i uint32) {
	r := &c.all[i]
	if r.state != prefilling && r.state != preempting {
		return
	}
	if r.state == preempting {
		c.totals.Late++
		c.void(r.id)
	}
	if r.class == Interactive {
		c.totals.Interactive.WaitSeconds += seconds(c.now - r.sent)
		c.served(i)
		c.unwait(i)
		c.spoke = c.now
		if c.unseen > 0 && r.sent <= c.unseen {
			c.engine.learnAbort(c.now - c.unseen)
		}
		c.unseen = 0
	} else {
		c.confirmBeside(r)
		if !r.unstreamed {
			c.engine.learnPace(r.total, r.context, r.ran+c.now-r.began)
		}
		c.totals.Long.WaitSeconds += seconds(c.now - r.arrived)
		c.land(i)
	}
	r.state = decoding
	c.decodes++
}

// Leave says that a request is gone, at any stage: finished, failed, moved elsewhere, or its client left. Unknown ids are
// ignored.
func (c *Controller) Leave(now int64, id uint64) {
	c.advance(now)
	if i, ok := c.byID[id]; ok {
		c.drop(i)
	}
	c.settle()
}

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
			c.unseen = r.ordered
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
	whole := c.engine.prefill(r.total, r.context)
	if done >= 0 {
		r.fresh = max(r.total-done, 1)
		r.ran = whole - c.engine.prefill(r.fresh, r.context)
	} else if ran > lost {
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
	r.state, r.since, r.returned = held, c.now, true
	at := len(c.back)
	for at > 0 && c.all[c.back[at-1]].arrived > r.arrived {
		at--
	}
	c.back = append(c.back, none)
	copy(c.back[at+1:], c.back[at:])
	c.back[at] = i
}

// Tick lets happen what is due.
func (c *Controller) Tick(now int64) {
	c.advance(now)
	c.settle()
}

// Actions appends what the caller must do, in order, and forgets it.
func (c *Controller) Actions(dst []Action) []Action {
	dst = append(dst, c.actions...)
	c.actions = c.actions[:0]
	return dst
}
