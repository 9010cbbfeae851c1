package ring

import "slices"

// rate is an engine's prefill speed in fresh tokens per second.
type rate struct {
	perSecond float64
	samples   int
	early     [fewRateSamples]float64 // the first ones
}

// Prefills that say something about speed: shorter ones measure the network and the engine's step time.
const minRateTokens = 2048

// Bounds of a rate, in tokens per second: what lies beyond is a fault of the clock.
const (
	minRate = 10
	maxRate = 10_000_000
)

// learn takes a prefill of so many fresh tokens that had the engine to itself. A machine that stalled for a moment makes one
// sample too low by any factor, and a rate that is far too low makes every queue look endless: sessions would leave engines
// that are merely busy. So the first samples give their median, and later ones count as at most twice or half of what is known.
func (r *rate) learn(fresh int, elapsed int64) {
	if fresh < minRateTokens || elapsed <= 0 {
		return
	}
	sample := min(max(float64(fresh)/(float64(elapsed)/1e9), minRate), maxRate)
	if r.samples < fewRateSamples {
		r.early[r.samples] = sample
		r.samples++
		known := r.early
		slices.Sort(known[:r.samples])
		r.perSecond = known[r.samples/2] // of two the faster one: a stall only slows
		return
	}
	r.samples++
	sample = min(max(sample, r.perSecond/2), 2*r.perSecond)
	r.perSecond += (sample - r.perSecond) * 0.2
}

// fewRateSamples is up to how many samples an engine's own rate is not trusted. Until then it is taken for as fast as other proxies
// have measured, or else as the fleet: with a guess of its own the one engine that happened to be measured would look faster, or slower, than all others.
const fewRateSamples = 3

func (p *Placer) rateOf(e *engine) float64 {
	switch {
	case e.rate.samples >= fewRateSamples:
		return e.rate.perSecond
	case e.heardRate > 0:
		return e.heardRate
	}
	return p.fleetRate.perSecond
}

// model is what is known of one model name.
type model struct {
	pool          *pool
	listed        bool // by some engine
	bytesPerToken float64
	samples       int
}

// learn takes a prompt whose size is known both ways. Short prompts are mostly chat template and say little.
func (m *model) learn(bytes, tokens int) {
	if tokens < 256 || bytes <= 0 {
		return
	}
	sample := min(max(float64(bytes)/float64(tokens), 0.25), 32)
	m.samples++
	m.bytesPerToken += (sample - m.bytesPerToken) * max(1/float64(m.samples), 0.05)
}

// tokens is the estimate for a number of canonical prompt bytes.
func (m *model) tokens(bytes int) int { return int(float64(bytes) / m.bytesPerToken) }

// PrefillRate is the speed of the charged engine in fresh tokens per second, as far as it has been learned; the fleet's
// until then.
func (c *Charge) PrefillRate() float64 {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.rateOf(c.e)
}
