package proxy

import (
	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring/identity"
)

// settings is what a reload may change, compiled for the requests. It never changes itself: a reload makes a new one, and a
// request goes by the one that it found at its start, to its end.
type settings struct {
	*config.Config
	gate   *config.Gate
	rules  *identity.Rules
	strip  headRules
	limits engines.Limits
}

func newSettings(cfg *config.Config) (*settings, error) {
	rules, err := identity.Compile(identitySources(cfg))
	if err != nil {
		return nil, cfg.At("identity.sources", err)
	}
	n := &settings{
		Config: cfg, gate: cfg.Paths.Gate(), rules: rules,
		limits: engines.Limits{Write: cfg.Timeouts.Write.Std(), FirstByte: cfg.Timeouts.FirstByte.Std(), BetweenBytes: cfg.Timeouts.BetweenBytes.Std()},
	}
	n.strip.strip = map[string]bool{"x-warmring-session": true, "x-warmring-parent": true}
	if !cfg.Headers.TrustInternal {
		for _, name := range config.InternalHeaders() {
			n.strip.strip[name] = true
		}
	}
	return n, nil
}

func identitySources(cfg *config.Config) []string {
	if len(cfg.Identity.Sources) == 0 {
		return identity.DefaultSources()
	}
	return cfg.Identity.Sources
}
