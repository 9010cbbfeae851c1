package lane

import "time"

// Options sets the policy and the bounds of a Controller. Zero fields take the defaults; negative ones count as zero.
type Options struct {
	// Target is how long an interactive request may be expected to wait behind a long prefill before that one is preempted.
	// Default 250 ms. Far below the engine's step time it changes nothing, as an abort takes effect at a step's end; too
	// large, and short turns wait.
	Target time.Duration

	// Border is how many fresh tokens make a request long. 0 derives it from the learned prefill rate: what takes twice
	// Target, at least 512. Too small holds and preempts requests that block nobody; too large lets blockers pass.
	Border int

	// Budget is how many fresh tokens of long prefills may be in flight at once; one is always allowed, whatever its size,
	// and never more than 32. 0 means one at a time: two prefills side by side end no sooner than one after the other.
	Budget int

	// Share is the part of the contended time that belongs to the long lane, above 0 to 1. Default 0.5: a long request takes
	// at most about twice as long as alone. Too small, and constant short load drags long ones out until they are immune;
	// at 1 long requests are neither held back nor preempted.
	Share float64

	// MinRunSteps is how many engine steps a long prefill runs between two preemptions. Default 2, so that an engine that
	// loses the step in flight still gets on. Larger makes short turns wait for as many steps.
	MinRunSteps int

	// MaxExtraDelay is the delay that interactive requests may add to one long request in all; after that it is immune. 0
	// derives it: what Share allows on top of its own prefill time, between 2 s and 5 min. Too small, and the last part of
	// every long prefill blocks short turns.
	MaxExtraDelay time.Duration

	// MaxPreemptions is how often one request may be preempted, after which it is immune. Default 100. Each preemption
	// sends the body again.
	MaxPreemptions int

	// MaxHeld bounds the long requests held before they are first sent; beyond it they are refused. Default 256. Each one
	// keeps its body in memory. Preempted ones do not count: there are at most as many as fit the budget.
	MaxHeld int

	// MaxHeldPerTenant bounds those of one tenant, besides what the room that is left allows: one tenant may hold up to four
	// times as many, in requests and in bytes, as there is room for more. Alone it may fill four fifths of the queue; one that
	// holds nothing always finds a place while there is any. Default: no further bound.
	MaxHeldPerTenant int

	// MaxHeldBytes bounds the sum of Arrival.Bytes of the requests held before they are first sent. Default 1 GiB. A request
	// that alone is larger is held if nothing else is.
	MaxHeldBytes int64

	// MaxWaiting bounds the interactive requests that await their first token at the engine; beyond it they are refused. Default
	// 1024: what waits there takes longer than clients wait, and an engine's own queue has no bound (vLLM) or refuses with less
	// to say.
	MaxWaiting int

	// MaxWait is how long a request may be held before it is first sent. Default 10 min, after which common clients have
	// given up anyway.
	MaxWait time.Duration

	// NoSlices sends every prompt whole, on every engine.
	NoSlices bool

	// Off lets everything pass and keeps no account of it.
	Off bool
}

const (
	minBorder     = 512
	maxInFlight   = 32
	minShare      = 0.05
	minExtraBound = 2 * time.Second
	maxExtraBound = 5 * time.Minute
)

func (o Options) withDefaults() Options {
	duration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	count := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	duration(&o.Target, 250*time.Millisecond)
	duration(&o.MaxWait, 10*time.Minute)
	o.MaxExtraDelay = max(o.MaxExtraDelay, 0)
	o.Border, o.Budget = max(o.Border, 0), max(o.Budget, 0)
	count(&o.MinRunSteps, 2)
	count(&o.MaxPreemptions, 100)
	count(&o.MaxHeld, 256)
	count(&o.MaxWaiting, 1024)
	if o.MaxHeldBytes <= 0 {
		o.MaxHeldBytes = 1 << 30
	}
	o.MaxHeldPerTenant = max(o.MaxHeldPerTenant, 0)
	if !(o.Share > 0) { // also NaN
		o.Share = 0.5
	}
	o.Share = min(max(o.Share, minShare), 1)
	return o
}
