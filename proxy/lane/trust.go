package lane

// wasLost says whether a slice has shown that the engine did not keep what the ones before it computed, and whether it could
// have.
func (c *Controller) wasLost(r *request, s Slice, took int64) (lost, known bool) {
	p := &r.slicing
	if s.Cached >= 0 {
		base := max(p.base, 0)
		gained := p.prompt - base
		if p.count < 2 || p.prompt <= 0 || gained < fewTokens {
			return false, false
		}
		return 2*(s.Cached-base) < gained, true
	}
	if p.count < slowFrom {
		return false, false
	}
	fresh := min(p.cut-(r.context-r.total), p.cut)
	return float64(took) > slowPart*float64(c.engine.prefill(fresh, p.cut)), true
}

// distrust counts a request whose slices were not kept, or not served.
func (c *Controller) distrust() {
	c.engine.lost++
	if c.engine.lost >= lostRequests {
		c.engine.lost = lostRequests - 1 // after that time one more is enough
		c.engine.distrusted = c.now + distrustFor
	}
}

// trust counts a request whose slices were kept, if they were.
func (c *Controller) trust(r *request) {
	if r.slicing.found > 0 && !r.slicing.never {
		c.engine.lost = 0
	}
}
