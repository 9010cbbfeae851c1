package lane

// Way is how long prompts give way to interactive requests on an engine.
type Way uint8

const (
	ByNothing    Way = iota // lanes are off
	ByHolding               // they are held back before they are sent, and not stopped once sent
	ByPreempting            // they are taken back once sent, and sent again
	BySlices                // they are sent in slices while there is contention, and taken back before the first of them
)

// String is "off", "hold", "preempt" or "slices".
func (w Way) String() string { return [...]string{"off", "hold", "preempt", "slices"}[w] }

// MarshalText writes the name.
func (w Way) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// way is how long prompts give way on this engine at present, and why.
func (c *Controller) way() (Way, string) {
	e := &c.engine
	switch {
	case c.opt.Off:
		return ByNothing, "lanes are off"
	case c.opt.Share >= 1:
		return ByNothing, "all of the time belongs to long prompts"
	case e.besideHelps(int64(c.opt.Target)):
		if e.canPreempt() {
			return ByPreempting, "the engine serves short turns beside a long prefill by itself; taken back if it fails to"
		}
		return ByHolding, "the engine serves short turns beside a long prefill by itself"
	}
	why := ""
	switch {
	case c.opt.NoSlices:
		why = "slices are switched off"
	case !e.facts.Slices:
		why = "slices are not possible"
	case c.now < e.distrusted:
		why = "the engine did not keep what slices computed"
	default:
		return BySlices, "the engine keeps what slices computed, as far as is known"
	}
	if e.canPreempt() {
		return ByPreempting, why
	}
	if e.facts.CanPreempt {
		return ByHolding, why + ", and what was computed before an abort is not found again"
	}
	return ByHolding, why + ", and the engine cannot stop a prefill at once"
}
