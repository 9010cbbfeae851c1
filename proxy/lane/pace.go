package lane

import "math"

// rate is the speed of a long prefill. What was observed of whole ones, taken back or not, is nearer to the next one than
// what the caller learns from prefills that nothing disturbed: there may be none of these, and short ones are faster.
func (e *engine) rate() float64 {
	if e.pace > 0 {
		return e.pace
	}
	if e.facts.PrefillRate > 0 {
		return e.facts.PrefillRate
	}
	return guessedRate
}

// prefill is the estimated ns for the last fresh tokens of a prompt of so many tokens: later tokens cost more. A rate that
// was told is that of the whole prompt; the one observed is that of its first tokens.
func (e *engine) prefill(fresh, context int) int64 {
	c, f := float64(max(context, fresh)), float64(fresh)
	whole := 1.0
	if e.pace == 0 {
		whole = 1 + contextCost*c/2
	}
	return int64(f / e.rate() * 1e9 * (1 + contextCost*(c-f/2)) / whole)
}

// left is the estimated ns of prefill left for a long request that is about to be sent.
func (e *engine) left(r *request) int64 {
	if r.slicing.count > 0 {
		return e.fromStart(r.fresh, r.context, e.startOf(r))
	}
	whole := e.prefill(r.total, r.context)
	if left := whole - r.ran; left > whole/16 {
		return left
	}
	return max(e.overrun(r.ran), whole/16)
}

// overrun is the estimated ns left of a prefill that takes longer than estimated. Who knows how long? Where the rate was
// observed, take it that an eighth of what passed is still to come; where it is a guess, as much again.
func (e *engine) overrun(ran int64) int64 {
	if e.paces > 0 {
		return ran / 8
	}
	return ran
}

// learnPace takes the ns in which the last fresh tokens of a prompt of so many were computed, in one run or in all of them.
func (e *engine) learnPace(fresh, context int, ran int64) {
	if ran <= 0 || fresh < minSlice {
		return
	}
	// One that was far quicker was found in the cache, against what the caller believed, and says little.
	sample := min(max(paceOf(fresh, context, ran), e.rate()/16), e.rate()*1.5)
	e.paces++
	e.pace += (sample - e.pace) * max(1/float64(e.paces), 0.3)
}

// paceOf is the fresh tokens/s, as if at the beginning of a prompt, at which its last fresh tokens took so many ns.
func paceOf(fresh, context int, ns int64) float64 {
	c, f := float64(max(context, fresh)), float64(fresh)
	return f * (1 + contextCost*(c-f/2)) / (float64(ns) / 1e9)
}

// fromStart is the ns for the last fresh tokens of a prompt of so many at a speed as if at its beginning.
func (e *engine) fromStart(fresh, context int, start float64) int64 {
	c, f := float64(max(context, fresh)), float64(fresh)
	return int64(f / start * 1e9 * (1 + contextCost*(c-f/2)))
}

// startOf is the speed at the beginning of a request's prompt. Its own latest slice knows best: at that context, just now.
func (e *engine) startOf(r *request) float64 {
	switch {
	case r.slicing.pace > 0:
		return r.slicing.pace
	case e.pace > 0:
		return e.pace
	}
	return e.rate() * (1 + contextCost*float64(r.context)/2)
}

// tokens is how many fresh tokens after so many others are computed in so many ns: the inverse of fromStart.
func (e *engine) tokens(ns int64, from int, start float64) int {
	b := 1 + contextCost*float64(max(from, 0))
	return int((math.Sqrt(b*b+2*contextCost*float64(ns)/1e9*start) - b) / contextCost)
}

// frontTime is the ns of the fixed part of a request: what reading and tokenizing a long prompt takes before its first step.
func (e *engine) frontTime() int64 { return int64(e.front) }

// learnFront takes the ns to first token of an interactive request, and whether nothing was in its way. The small ones of them
// say what is fixed; they are followed down soon and up slowly. One that was quicker although something was in its way says so
// all the more: without it a wrong belief would last for as long as there is always a long prefill.
func (e *engine) learnFront(x *request, ns int64, clear bool) {
	sample := float64(max(ns-e.prefill(x.fresh, x.context), 0))
	if !clear && sample >= e.front {
		return
	}
	e.fronts++
	weight := 0.05
	if sample < e.front {
		weight = 0.3
	}
	e.front += (sample - e.front) * max(1/float64(e.fronts), weight)
}
