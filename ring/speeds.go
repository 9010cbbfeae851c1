package ring

// Speed is an engine's prefill rate as one proxy has learned it, as it travels between proxies.
type Speed struct {
	Engine    uint32 // EngineID
	PerSecond int    // fresh tokens
}

// Speeds appends what this proxy has learned itself. What others told is not told again.
func (p *Placer) Speeds(list []Speed) []Speed {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.engines {
		if e != nil && e.rate.samples >= fewRateSamples {
			list = append(list, Speed{EngineID(e.Name), int(e.rate.perSecond)})
		}
	}
	return list
}

// HearSpeeds takes what another proxy has learned. It counts for an engine until this proxy has measured that itself, so a proxy that has
// just started need not take all engines for equally fast. Engines that are unknown here and rates out of bounds are left.
func (p *Placer) HearSpeeds(list []Speed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return
	}
	for _, s := range list {
		if e := p.engineByID(s.Engine); e != nil && s.PerSecond >= minRate && s.PerSecond <= maxRate {
			e.heardRate = float64(s.PerSecond)
		}
	}
}
