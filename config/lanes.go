package config

import "time"

// Lanes keep long prefills from blocking short turns: they are held back, sent in slices while short turns are there, and taken back from the engine before their first token when a short turn would wait behind them.
type Lanes struct {
	// Off lets every request pass to its engine at once. Default false.
	Off bool `toml:"off"`

	// Target is how long a short turn may be expected to wait behind a long prefill before that one is taken back. Default 250ms. Below an engine's step time it changes nothing, since an
	// abort takes effect at a step's end; large values let short turns wait.
	Target Duration `toml:"target"`

	// Border is how many fresh tokens make a request long. Default 0: derived from the engine's learned prefill rate, what takes twice Target. Too small holds back requests that block
	// nobody; too large lets blockers pass.
	Border int `toml:"border"`

	// Budget is how many fresh tokens of long prefills one engine is given at once. Default 0: one long prefill at a time. Two side by side end no sooner than one after the other.
	Budget int `toml:"budget"`

	// Share is the part of an engine's contended prefill time that long requests get, above 0 to 1. Default 0.5. Small values drag long requests out under constant short load; at 1 nothing
	// is held back or taken back.
	Share float64 `toml:"share"`

	// MaxExtraDelay is the delay that short turns may add to one long request; after it, it runs undisturbed. Default 0: what Share allows on top of its own prefill time, 2 s to 5 min.
	MaxExtraDelay Duration `toml:"max_extra_delay"`

	// Slices lets a long request go to its engine as growing prefixes while short turns are there, each with one token of output that nobody sees, and then whole: short turns get in between. Default
	// true. It works on engines that cannot stop, too. Each slice costs the engine its fixed part of a request, and its own counters see the prefix's tokens again. False takes long prompts back instead, where the engine can
	// stop, which makes short turns wait longer.
	Slices bool `toml:"slices"`

	// MaxHeld is how many long requests may be held per engine; more get 429 with Retry-After. Default 256. Each keeps its body in memory.
	MaxHeld int `toml:"max_held"`

	// MaxHeldBytes is how many bytes the bodies of the requests held per engine may have together; more get 429 with Retry-After. Default 1GB. One is held whatever its size. While a request goes in
	// slices its prefix takes as much again at most.
	MaxHeldBytes Size `toml:"max_held_bytes"`

	// MaxWaiting is how many short turns may await their first token at one engine, those that are not streamed until their end;
	// more get 429 with Retry-After. Default 1024, far more than an engine serves in the time that a client waits. Too small refuses bursts that engines would serve.
	MaxWaiting int `toml:"max_waiting"`

	// MaxWait is how long a long request may be held before it is first sent; then it gets 429. Default 10m, after which common clients have given up.
	MaxWait Duration `toml:"max_wait"`
}

func defaultLanes() Lanes {
	return Lanes{Target: Duration(250 * time.Millisecond), Share: 0.5, Slices: true, MaxHeld: 256, MaxHeldBytes: 1 << 30, MaxWaiting: 1024, MaxWait: Duration(10 * time.Minute)}
}

func (c *Config) validateLanes(p *problems) {
	within("lanes.target", c.Lanes.Target, Duration(10*time.Millisecond), Duration(time.Minute), p)
	within("lanes.border", c.Lanes.Border, 0, 10_000_000, p)
	within("lanes.budget", c.Lanes.Budget, 0, 100_000_000, p)
	if !(c.Lanes.Share >= 0.05 && c.Lanes.Share <= 1) {
		p.addf("lanes.share", "0.5 gives long requests half of the contended time", "lanes.share must be from 0.05 to 1")
	}
	within("lanes.max_extra_delay", c.Lanes.MaxExtraDelay, 0, Duration(time.Hour), p)
	within("lanes.max_held", c.Lanes.MaxHeld, 1, 1_000_000, p)
	within("lanes.max_held_bytes", c.Lanes.MaxHeldBytes, 64<<10, 1<<40, p)
	within("lanes.max_waiting", c.Lanes.MaxWaiting, 1, 1_000_000, p)
	within("lanes.max_wait", c.Lanes.MaxWait, Duration(time.Second), Duration(24*time.Hour), p)
}
