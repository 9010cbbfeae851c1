package lane

import "time"

// Facts is what the caller knows of the engine. A zero field is unknown: the Controller then uses what it has observed
// itself, and failing that a guess.
type Facts struct {
	PrefillRate float64 // fresh tokens per second of a long prefill that has the engine to itself, learned
	StepSeconds float64 // duration of a step of such a prefill; bounds how long an abort takes. Observed otherwise.
	// CanPreempt says that the engine can stop a prefill at once and keeps what it computed. False: requests are only held
	// back. Hybrid models that resume at checkpoints, and prefills that were handed off, must say false.
	CanPreempt bool
	// Slices says that the caller can send a prefix of a prompt as a request of its own, and that the engine keeps what it
	// computes of it. Whether it does is checked: see Sliced.
	Slices bool
	// KeepsStep says that an abort keeps even the step in flight (vLLM), not only those before it (SGLang). Unknown counts
	// as false, which makes the minimum run longer: the step in flight is lost then, and must be a small part of a run.
	KeepsStep bool
	// FreezesDecodes says that running answers stand still during a prefill (SGLang without mixed chunks). A long one that was
	// taken back then lets them run for another Target, as long as there is credit; it is not taken back for them.
	FreezesDecodes bool
	// UnseenAborts says that Preempted does not tell when the engine stopped, only that the connection was closed, and that its
	// steps are long: the next first token of a short turn that waited for the abort tells it then.
	UnseenAborts bool
	AbortSeconds float64 // last observed time from an abort to its effect. Observed otherwise.
	// Kept is the share of a computed prefix that was found again after an abort. Below 0.5 preemption is off; for "nothing"
	// pass a small positive number.
	Kept float64
	// ShortBehindLong is the time to first token of interactive requests that ran beside a long prefill all the time. Where
	// it is small the engine's own chunking helps (vLLM's --long-prefill-token-threshold), and preemption waits until it
	// would win. Observed otherwise.
	ShortBehindLong float64
}

const (
	guessedRate = 8000 // fresh tokens/s: about a mid-size model on one large GPU, and what ring begins with
	guessedStep = 2048 // tokens in a step; the smallest default of the common engines, so that aborts soon tell the truth
	minKept     = 0.5
	// contextCost is the relative slowdown of a fresh token per token of context before it. Half the speed at 100k tokens is
	// what large models show; attention's part differs, so it is used only where an error makes a preemption come early.
	contextCost = 1e-5
	// besideSamples is how many interactive requests must have been served beside a long prefill before that is believed.
	besideSamples = 2
	// trials is how many preemptions of an engine are put off to see that, at first, and of how many one later.
	trials     = 3
	trialEvery = 256
)

// engine is what is known of the engine: told and observed.
type engine struct {
	facts    Facts
	abort    float64 // ns from order to effect, recent mean; 0 = none seen
	longest  float64 // ns, decaying maximum of the same: it comes near the step time
	beside   float64 // ns to the first token of interactive requests beside a long prefill
	besides  int     // samples of it
	observed int     // aborts
	pace     float64 // fresh tokens/s at the beginning of long prefills, recent mean; 0 = none came to its end yet
	paces    int     // samples of it
	chances  uint    // preemptions that were due while beside was unknown
	front    float64 // ns of the fixed part of a request, recent small ones
	fronts   int     // samples of it

	lost       int   // requests in a row whose slices were not kept
	distrusted int64 // until when no slices are sent for that
}

// step is the estimated ns of a prefill step.
func (e *engine) step() int64 {
	switch {
	case e.facts.StepSeconds > 0:
		return int64(e.facts.StepSeconds * 1e9)
	case e.observed > 0:
		return int64(max(e.longest, 1e6))
	}
	return int64(guessedStep / e.rate() * 1e9)
}

// abortTime is the ns that an abort is expected to take.
func (e *engine) abortTime() int64 {
	switch {
	case e.facts.AbortSeconds > 0:
		return int64(e.facts.AbortSeconds * 1e9)
	case e.observed > 0:
		return int64(e.abort)
	}
	return e.step() / 2
}

// border is how many fresh tokens make a request long.
func (e *engine) border(opt *Options) int {
	if opt.Border > 0 {
		return opt.Border
	}
	return int(min(max(2*opt.Target.Seconds()*e.rate(), minBorder), 1<<30))
}

// canPreempt says whether the engine's prefills may be taken back at all.
func (e *engine) canPreempt() bool {
	return e.facts.CanPreempt && (e.facts.Kept <= 0 || e.facts.Kept >= minKept)
}

// besideTime is the ns within which the engine is believed to serve an interactive request beside a long prefill; 0 = it
// makes it wait for the end.
func (e *engine) besideTime() int64 {
	switch {
	case e.facts.ShortBehindLong > 0:
		return int64(e.facts.ShortBehindLong * 1e9)
	case e.besides >= besideSamples:
		return int64(e.beside)
	}
	return 0
}

// besideHelps says whether the engine is believed to serve interactive requests beside a long prefill soon enough.
func (e *engine) besideHelps(target int64) bool {
	t := e.besideTime()
	return t > 0 && t <= target+e.abortTime()
}

// learnAbort takes the time that an abort took.
func (e *engine) learnAbort(ns int64) {
	e.observed++
	e.abort += (float64(ns) - e.abort) * max(1/float64(e.observed), 0.3)
	fade := 0.97
	if e.facts.KeepsStep {
		// Too short a run costs nothing but a resend here, so the estimate may follow the steps down sooner.
		fade = 0.9
	}
	e.longest = max(float64(ns), e.longest*fade)
}

// learnBeside takes the time to first token of an interactive request that a long prefill did not keep waiting.
func (e *engine) learnBeside(ns int64) {
	e.besides++
	e.beside += (float64(ns) - e.beside) * max(1/float64(e.besides), 0.3)
}

// minRun is the ns that a long prefill runs before an abort may be ordered.
func (e *engine) minRun(steps int) int64 {
	step := e.step()
	if e.facts.KeepsStep {
		// The abort takes effect at the end of the step in flight: ordered within the last one, all of them are kept. An
		// engine that plans one step ahead takes up to two for an abort, so the mean is nearer to a step than the longest; and
		// a run that is too short costs nothing here but sending the body again.
		if e.facts.StepSeconds <= 0 && e.observed > 0 {
			step = min(step, int64(e.abort))
		}
		return int64(steps-1)*step + step/8
	}
	// The step in flight is computed twice. After twice as many steps that is a fifth of the run, not a third.
	return int64(2*steps)*step + step/8
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }
