package lane

import "math/bits"

// Slices. A prompt that is sent as growing prefixes of itself, one after the other, each with one token of output, is computed
// in pieces that are as short as wanted: whatever the length of the engine's own steps, whether or not it can stop, and
// without anything being computed twice. Each piece costs the engine's fixed part of a request (its front end reads and
// tokenizes the whole prefix again), so slices are sent only while somebody is there who would wait, and are sized by time.

const (
	// calm is for how long an arrival that would wait behind a long prefill makes the next ones likely; restless the same
	// where a long prefill that has begun cannot be taken back, so that the first one to come pays in full.
	calm     = int64(10e9)
	restless = int64(600e9)
	// frontParts is how many times the fixed part of a request a slice is long: an eighth of the time is lost at most.
	frontParts = 8
	// lastSlice is how many slices' work may be left for the request itself to be sent instead, in halves.
	lastSlice = 3
	minSlice  = 128 // tokens; smaller ones would be all overhead
	// stepMargin is the part of a step's tokens that a slice leaves free.
	stepMargin = 16
	// fewTokens of a prefix say nothing about whether it was kept: block sizes and estimates outweigh them.
	fewTokens = 256
	// lostInARow within one request send it whole, lostRequests in a row end slices for distrustFor.
	lostInARow   = 2
	lostRequests = 3
	distrustFor  = int64(600e9)
	// slowPart is the part of the time for a whole prefix beyond which, from the slowFrom-th slice on, it was computed anew.
	slowPart = 0.6
	slowFrom = 3
)

// slicing is what a request's slices have shown so far.
type slicing struct {
	cut    int     // tokens of the prompt in the slice in flight, or the latest one; they only grow
	flying bool    // what is in flight is a slice, not the request itself
	brief  bool    // what is in flight was sent to take no longer than a slice
	never  bool    // this prompt cannot be cut, or its slices were not kept
	count  int32   // slices that ended
	found  int32   // of these, found by the next one
	lost   uint8   // of these in a row, not found by the next one
	base   int     // tokens that the engine had before the first one, in its own count; -1 = unknown
	prompt int     // tokens of the latest one, in the engine's count; -1 = unknown
	fresh  int     // tokens that the latest one was meant to compute
	took   int64   // ns
	pace   float64 // fresh tokens/s of the latest one, as if at the beginning of the prompt; 0 = unknown
	length length
}

// contend notes that somebody came who would wait behind a long prefill.
func (c *Controller) contend() {
	d := calm
	if !c.engine.canPreempt() {
		d = restless
	}
	c.until = c.now + d
}

// came notes the time between two interactive requests, recent mean. Longer pauses than calm say nothing of busier times.
func (c *Controller) came() {
	c.contend()
	if since := c.now - c.arrived; c.arrived > 0 && since < calm {
		c.gap += (since - c.gap) / 8
	}
	c.arrived = c.now
}

// contended says whether somebody waits, or is likely to come, who should not wait for a whole long prefill.
func (c *Controller) contended() bool { return c.interactive() || c.now < c.until }

// sliceTime is the ns that a slice is meant to take, its fixed part aside: long enough for that part to be small, and for
// somebody to come in the meantime; short enough for whoever comes.
func (c *Controller) sliceTime() int64 {
	t := int64(c.opt.Target)
	return min(max(frontParts*c.engine.frontTime(), c.gap*3/4, 2*t), 8*t)
}

// slices says whether a long request goes in slices at present.
func (c *Controller) slices(r *request) bool {
	return !r.noSlices && !r.slicing.never && c.contended() && c.way() == BySlices
}

// cutFor is how many tokens of a prompt the next run of a long request is to compute; 0 = all, the request itself.
func (c *Controller) cutFor(r *request) int {
	if !c.slices(r) {
		return 0
	}
	e, s := &c.engine, &r.slicing
	span, from := c.sliceTime(), r.context-r.fresh
	n := e.tokens(span, from, e.startOf(r))
	if e.pace == 0 && e.facts.PrefillRate <= 0 && s.pace == 0 {
		n /= 4 // better too short than too long
	}
	if s.count > 0 && s.took < span/2 {
		n = max(n, 2*s.fresh) // more of it is cached than was believed: let it not take forever to find out
	}
	n = max(n, s.length.least)
	if n >= r.fresh*2/lastSlice {
		return 0
	}
	scale := 1.0 // of the engine's count of tokens to the caller's
	if s.count > 0 && s.prompt > 0 && s.cut > 0 {
		scale = float64(s.prompt) / float64(s.cut)
	}
	n = int(float64(wholeSteps(int(float64(n)*scale))) / scale)
	return from + max(n, minSlice, s.cut+1-from)
}

// wholeSteps is the number of tokens next to n that fills an engine's steps, whatever they are: a step that is hardly used may
// cost as much as a full one (109 tokens at 24k of context took a vLLM on a CPU 155 ms, 512 hardly more). The tokens in a step
// are a power of two with nearly everybody, so slices are too, less what the template adds behind a cut and the blocks that a
// cut leaves half full.
func wholeSteps(n int) int {
	if n < 2 {
		return n
	}
	whole := 1 << (bits.Len(uint(n)) - 1)
	if 2*n >= 3*whole {
		whole *= 2
	}
	return whole - whole/stepMargin
}

// sliced takes the end of a slice.
func (c *Controller) sliced(i uint32, s Slice) {
	r := &c.all[i]
	took := max(c.now-r.began, 1)
	if r.state == preempting {
		c.totals.Late++
		c.void(r.id)
	}
	c.confirmBeside(r)
	c.totals.SliceSeconds += seconds(c.now - r.sent)
	if s.Failed {
		c.totals.SlicesRefused++
		r.slicing.never = true
		if s.Refused {
			c.distrust()
		}
	} else {
		c.totals.Slices++
		c.learnSlice(r, s, took)
	}
	r.ran = max(c.engine.prefill(r.total, r.context)-c.engine.prefill(r.fresh, r.context), 0)
	c.land(i)
	c.putBack(i)
}

// learnSlice takes what a slice has shown: how far the prompt is now, the pace, and whether the ones before it were kept.
func (c *Controller) learnSlice(r *request, s Slice, took int64) {
	p, e := &r.slicing, &c.engine
	p.count++
	meant := p.cut - (r.context - r.fresh)
	n := meant
	lost, known := c.wasLost(r, s, took)
	if s.Prompt > 0 && s.Cached >= 0 && s.Cached <= s.Prompt {
		n = int(float64(p.cut) * float64(s.Prompt-s.Cached) / float64(s.Prompt))
	}
	if p.count == 1 {
		p.base = min(s.Cached, s.Prompt)
	}
	p.prompt, p.took, p.fresh = s.Prompt, took, meant
	if lost {
		c.totals.SlicesLost++
		if p.lost++; p.lost >= lostInARow {
			p.never = true
			r.fresh = max(r.total, 1) // nothing of it is there
			c.distrust()
			return
		}
	} else {
		p.lost = 0
		if known {
			p.found++
		}
		// One that was cached for the most part says nothing of the pace.
		if clear := max(took-e.frontTime(), took/4, 1); n >= max(meant/4, minSlice) {
			p.pace = min(paceOf(n, p.cut, clear), 2*e.startOf(r)) // or some of it was cached
			e.learnPace(n, p.cut, clear)
			p.length.learn(p.cut, meant, float64(n)/float64(took), p.pace, e.facts.PrefillRate, took < 8*int64(c.opt.Target))
		}
	}
	r.fresh = min(max(r.context-p.cut, 1), max(r.fresh-1, 1))
}

// Sliced says that a slice has ended, which was sent by an Admit action with Tokens. The request is back in the proxy and
// waits for its next Admit, which may be among the next Actions already. A request that has no slice in flight is left as it
// is. A slice that ended in the moment of its preemption is told here too, and its work counts.
//
// The counts show whether the engine keeps what slices compute: where, twice in a row, less than half of what the earlier
// slices of a request computed is found, the request goes whole from there, and after three such requests in a row no slices
// are sent for 10 minutes. Where the engine does not say, the time shows it.
func (c *Controller) Sliced(now int64, id uint64, s Slice) {
	c.advance(now)
	if i, ok := c.byID[id]; ok {
		r := &c.all[i]
		if r.slicing.flying && (r.state == prefilling || r.state == preempting) {
			c.sliced(i, s)
		}
	}
	c.settle()
}

// begin notes what the next run of a long request is to compute, and how long that will take.
func (c *Controller) begin(r *request, cut int) {
	e, s := &c.engine, &r.slicing
	s.flying, s.brief = cut > 0, cut > 0
	if cut == 0 {
		r.leg = e.left(r)
		s.brief = r.leg <= lastSlice*c.sliceTime()/2 && (s.count > 0 || c.slices(r))
	} else {
		r.leg = e.fromStart(cut-(r.context-r.fresh), cut, e.startOf(r))
		s.cut = cut
	}
	if s.brief {
		r.leg += e.frontTime()
	}
}

// learnRun takes the first token of a long request.
func (c *Controller) learnRun(r *request) {
	c.trust(r)
	ran := c.now - r.began
	switch {
	case r.unstreamed:
	case r.slicing.count == 0:
		c.engine.learnPace(r.total, r.context, r.ran+ran)
	case !r.slicing.never:
		c.engine.learnPace(r.fresh, r.context, max(ran-c.engine.frontTime(), ran/4))
	}
}
