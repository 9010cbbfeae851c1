package lane

// Lane is what was counted of one lane.
type Lane struct {
	Arrived      uint64  `json:"arrived"`
	WaitSeconds  float64 `json:"wait_seconds"`  // from arrival to first token, sum
	HeldSeconds  float64 `json:"held_seconds"`  // in the proxy, sum, for whatever reason; long only
	ExtraSeconds float64 `json:"extra_seconds"` // delay because of interactive requests, sum; long only
}

// Totals count events since the start.
type Totals struct {
	Interactive    Lane    `json:"interactive"`
	Long           Lane    `json:"long"`
	Passed         uint64  `json:"passed"`              // while lanes were off
	Held           uint64  `json:"held"`                // long requests that were not sent at once
	Full           uint64  `json:"full"`                // refused: queue full
	Crowded        uint64  `json:"crowded"`             // refused: too many interactive ones await their first token
	Expired        uint64  `json:"expired"`             // refused: held too long
	Admitted       uint64  `json:"admitted"`            // Admit actions, for the first time or again
	Guaranteed     uint64  `json:"admitted_guaranteed"` // of these, while interactive requests waited
	Ordered        uint64  `json:"preemptions_ordered"`
	Preempted      uint64  `json:"preempted"`       // aborts that took effect
	Late           uint64  `json:"preempted_late"`  // the engine answered first: the answer won
	Immune         uint64  `json:"immune"`          // long requests that were delayed enough
	Slices         uint64  `json:"slices"`          // slices that ended
	SlicesLost     uint64  `json:"slices_lost"`     // of these, computed without what earlier ones had computed
	SlicesRefused  uint64  `json:"slices_refused"`  // of these, refused by the engine
	SliceSeconds   float64 `json:"slice_seconds"`   // that slices took
	RunSeconds     float64 `json:"run_seconds"`     // in which a long prefill ran
	LostSeconds    float64 `json:"lost_seconds"`    // of these, for steps that an abort threw away
	BlockedSeconds float64 `json:"blocked_seconds"` // in which interactive requests kept the long lane waiting
}

// View is the state of a Controller.
type View struct {
	Off             bool    `json:"off"`
	Border          int     `json:"border_tokens"`
	TargetSeconds   float64 `json:"target_seconds"`
	PrefillRate     float64 `json:"prefill_tokens_per_second"`
	StepSeconds     float64 `json:"step_seconds"`
	AbortSeconds    float64 `json:"abort_seconds"`
	AbortsSeen      int     `json:"aborts_seen"`
	Kept            float64 `json:"kept"` // 0 = unknown
	ShortBehindLong float64 `json:"short_behind_long_seconds"`
	CanPreempt      bool    `json:"can_preempt"`
	Way             Way     `json:"way"`               // how long prompts give way: "slices", "preempt", "hold", or "off"
	Why             string  `json:"way_reason"`        // why it is this one
	Distrusted      float64 `json:"slices_distrusted"` // seconds for which no slices are sent, as the engine did not keep some
	SliceSeconds    float64 `json:"slice_seconds"`     // that a slice is meant to take at present, its fixed part aside
	FrontSeconds    float64 `json:"front_seconds"`     // of that fixed part: the engine's front end, learned from short turns
	CreditSeconds   float64 `json:"credit_seconds"`    // that the long lane may still be kept waiting
	Blocked         bool    `json:"blocked"`           // the next long request waits for interactive ones only

	Waiting      int   `json:"interactive_waiting"` // for their first token
	Held         int   `json:"long_held"`           // never sent yet
	HeldTokens   int64 `json:"long_held_tokens"`    // preempted ones included
	Tenants      int   `json:"long_held_tenants"`
	Back         int   `json:"long_preempted"` // held after a preemption
	InFlight     int   `json:"long_in_prefill"`
	FlightTokens int64 `json:"long_in_prefill_tokens"`
	Preempting   int   `json:"long_preempting"` // of these
	Decoding     int   `json:"decoding"`        // past their first token, both lanes

	Totals Totals `json:"totals"`
}

// View returns the present state. Its cost grows with the requests held.
func (c *Controller) View() View {
	v := View{
		Off: c.opt.Off, Border: c.Border(), TargetSeconds: c.opt.Target.Seconds(), PrefillRate: c.engine.rate(),
		StepSeconds: seconds(c.engine.step()), AbortSeconds: seconds(c.engine.abortTime()), AbortsSeen: c.engine.observed,
		Kept: c.engine.facts.Kept, ShortBehindLong: seconds(c.engine.besideTime()), CanPreempt: c.engine.canPreempt(),
		SliceSeconds: seconds(c.sliceTime()), FrontSeconds: seconds(c.engine.frontTime()),
		Distrusted:    seconds(max(c.engine.distrusted-c.now, 0)),
		CreditSeconds: seconds(c.credit), Blocked: c.blocked != none,
		Waiting: c.waiting[streams].n + c.waiting[wholes].n, Held: c.queue.len(), Tenants: len(c.queue.heap), Back: len(c.back),
		InFlight: len(c.flight), Decoding: c.decodes, Totals: c.totals,
	}
	v.Way, v.Why = c.way(), c.why()
	for i := c.queue.arrival.first; i != none; i = c.all[i].next {
		v.HeldTokens += int64(c.all[i].fresh)
	}
	for _, i := range c.back {
		v.HeldTokens += int64(c.all[i].fresh)
	}
	for _, i := range c.flight {
		r := &c.all[i]
		v.FlightTokens += int64(r.fresh)
		if r.state == preempting {
			v.Preempting++
		}
	}
	return v
}

// Status is what became of one request so far.
type Status struct {
	Class        Class   `json:"lane"`
	State        string  `json:"state"` // held, prefilling, preempting, decoding
	HeldSeconds  float64 `json:"held_seconds"`
	ExtraSeconds float64 `json:"extra_seconds"`
	Preempted    int     `json:"preempted"`
	Slices       int     `json:"slices,omitempty"`
	Immune       bool    `json:"immune,omitempty"`
}

// Status returns what became of a request, until it leaves.
func (c *Controller) Status(now int64, id uint64) (s Status, ok bool) {
	i, ok := c.byID[id]
	if !ok {
		return Status{}, false
	}
	r := &c.all[i]
	heldFor := r.heldFor
	if r.state == held {
		heldFor += max(now, c.now) - r.since
	}
	return Status{r.class, r.state.String(), seconds(heldFor), seconds(r.extra), int(r.preempted), int(r.slicing.count), r.immune}, true
}

// HeldIDs appends the requests that are in the proxy: those taken back first, the others by arrival. For an engine that goes
// away, and for a shutdown.
func (c *Controller) HeldIDs(dst []uint64) []uint64 {
	for _, i := range c.back {
		dst = append(dst, c.all[i].id)
	}
	for i := c.queue.arrival.first; i != none; i = c.all[i].next {
		dst = append(dst, c.all[i].id)
	}
	return dst
}
