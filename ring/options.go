package ring

import "time"

// Options sets the bounds and the policy of a Placer. Zero fields take the defaults below; the figures behind the policy
// ones come from a simulation of 710 recorded sessions.
type Options struct {
	// VirtualNodes is the number of ring points per unit of engine weight. Fewer make shares uneven (at 160 the fullest of
	// 64 engines owns 1.2 times the mean), more cost memory: 10 bytes each and pool. All proxies need the same value to agree.
	VirtualNodes int

	// Candidates is how many engines of the ring a new session looks at. One is plain hashing and leaves some engines with
	// several times the work of others; more than four gains nothing and costs time.
	Candidates int

	// Hysteresis is the gain that moves a session which is warm where it is. Much below 20 s moves feed on each other when
	// memory is tight: each one evicts somebody else.
	Hysteresis time.Duration

	// ColdGain is the gain that moves a session which is cold where it is anyway.
	ColdGain time.Duration

	// Tie is the difference in cost below which memory decides: the engine with the most free KV. A tenth of the cost is
	// a tie in any case, as learned prefill rates are no better than that.
	Tie time.Duration

	// RunningCost is the cost of each request in flight on an engine, for what it takes from a prefill's speed.
	RunningCost time.Duration

	// SessionIdle is how long an idle session is remembered.
	SessionIdle time.Duration

	// Active is how long after its last turn a session's context counts against its engine's memory. Between seconds and an
	// hour it changes the hit rate little; short ones forget sessions whose human will be back, and share out unevenly.
	Active time.Duration

	// MaxSessions bounds the sessions remembered, at about 100 bytes each. The longest idle go first.
	MaxSessions int

	// MaxIndexTokens bounds the warmth index over all engines, at no more than 100 bytes per 1,000 tokens.
	MaxIndexTokens int64

	// MaxModels bounds the model names whose bytes per token are learned apart, beyond those that engines list.
	MaxModels int

	// DefaultKVTokens stands for an unknown KV capacity. Too small a belief costs warmth that was there; too large a one
	// costs a wrong guess, corrected by the next answer's cached_tokens.
	DefaultKVTokens int64

	// DefaultPrefillRate is an engine's speed in fresh tokens per second until it is learned.
	DefaultPrefillRate float64

	// DefaultBytesPerToken is a model's ratio until it is learned.
	DefaultBytesPerToken float64

	// SessionsPerCopy is how many active sessions with the same head (tools and system prompt) each copy of it must serve
	// before one more copy is worth its prefill. Until then a new session prefers an engine that has the head; from then on
	// the head plays no part in the choice. Too large piles sessions up, too small computes heads over and over.
	SessionsPerCopy int
}

func (o Options) withDefaults() Options {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Hysteresis, 20*time.Second)
	def(&o.ColdGain, 500*time.Millisecond)
	def(&o.Tie, 25*time.Millisecond)
	def(&o.RunningCost, 20*time.Millisecond)
	def(&o.SessionIdle, time.Hour)
	def(&o.Active, 30*time.Minute)
	count := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	count(&o.VirtualNodes, 160)
	count(&o.Candidates, 4)
	o.Candidates = min(o.Candidates, maxRingCandidates)
	count(&o.MaxSessions, 1_000_000)
	count(&o.MaxModels, 256)
	count(&o.SessionsPerCopy, 2)
	if o.MaxIndexTokens <= 0 {
		o.MaxIndexTokens = 2_000_000_000
	}
	if o.DefaultKVTokens <= 0 {
		o.DefaultKVTokens = 4_000_000
	}
	if o.DefaultPrefillRate <= 0 {
		o.DefaultPrefillRate = 8_000
	}
	if o.DefaultBytesPerToken <= 0 {
		o.DefaultBytesPerToken = 3.6
	}
	return o
}
