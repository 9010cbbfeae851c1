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
	back    []uint32 // those that were sent before, in front of the queue, by order
	flight  []uint32 // long ones in prefill, by seq; they hold the budget

	credit  int64  // ns that the long lane may still be kept waiting
	blocked uint32 // the long request that waits for interactive ones, and for nothing else
	clear   int64  // since when no long prefill has been in flight
	until   int64  // until when somebody is likely to come who would wait behind a long prefill
	arrived int64  // last interactive request
	gap     int64  // ns between two of them, recent mean
	held    int64  // bytes of the bodies in the queue
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
		if c.waiting[streams].n+c.waiting[wholes].n >= c.opt.MaxWaiting {
			c.totals.Crowded++
			c.settle()
			return Crowded
		}
		c.came()
		i := c.add(a, Interactive, fresh)
		c.send(i, 0)
		c.settle()
		return Go
	}
	c.totals.Long.Arrived++
	if len(c.flight) == 0 && len(c.back) == 0 && c.queue.len() == 0 {
		c.credit = c.grace()
	}
	if !c.roomFor(&a) {
		c.totals.Full++
		c.settle()
		return Full
	}
	i := c.add(a, Long, fresh)
	r := &c.all[i]
	r.bound = c.extraBound(r)
	r.order = r.orderNow(&c.engine)
	r.state, r.since = held, c.now
	c.crowd(r)
	if len(c.back) == 0 && c.queue.len() == 0 && c.fits(r) && !c.mustWait(r) && c.cutFor(r) == 0 {
		c.send(i, 0)
		c.settle()
		return Go
	}
	c.held += r.bytes
	c.queue.push(i, a.Tenant)
	c.settle()
	if c.all[i].state == held {
		c.totals.Held++
	}
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
		c.hearAbort(r)
		c.engine.learnFront(r, c.now-r.sent, r.alone && len(c.flight) == 0 && !c.interactive())
	} else {
		c.confirmBeside(r)
		c.learnRun(r)
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
