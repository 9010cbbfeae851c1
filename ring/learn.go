package ring

// rate is an engine's prefill speed in fresh tokens per second.
type rate struct {
	perSecond float64
	samples   int
}

// Prefills that say something about speed: shorter ones measure the network and the engine's step time.
const minRateTokens = 2048

// learn takes a prefill of so many fresh tokens that had the engine to itself. Samples beyond reason are cut, and the first
// few count more, so that the guess is left quickly.
func (r *rate) learn(fresh int, elapsed int64) {
	if fresh < minRateTokens || elapsed <= 0 {
		return
	}
	sample := min(max(float64(fresh)/(float64(elapsed)/1e9), 10), 1e7)
	r.samples++
	r.perSecond += (sample - r.perSecond) * max(1/float64(r.samples), 0.2)
}

// fewRateSamples is up to how many samples an engine's own rate is not trusted. Until then it is taken for as fast as the
// fleet: with a guess of its own the one engine that happened to be measured would look faster, or slower, than all others.
const fewRateSamples = 3

func (p *Placer) rateOf(e *engine) float64 {
	if e.rate.samples < fewRateSamples {
		return p.fleetRate.perSecond
	}
	return e.rate.perSecond
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
