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

// way is how long prompts give way on this engine at present.
func (c *Controller) way() Way {
	e := &c.engine
	switch {
	case c.opt.Off || c.opt.Share >= 1:
		return ByNothing
	case c.sliceable() && !e.besideHelps(int64(c.opt.Target)):
		return BySlices
	case e.canPreempt():
		return ByPreempting
	}
	return ByHolding
}

// sliceable says whether slices are possible and worth their while.
func (c *Controller) sliceable() bool {
	return c.engine.facts.Slices && !c.opt.NoSlices && c.now >= c.engine.distrusted
}

// why says in words why it is this way.
func (c *Controller) why() string {
	e := &c.engine
	switch way := c.way(); {
	case c.opt.Off:
		return "lanes are off"
	case way == ByNothing:
		return "all of the time belongs to long prompts"
	case way == BySlices:
		return "the engine keeps what slices compute, as far as is known"
	case e.besideHelps(int64(c.opt.Target)) && way == ByPreempting:
		return "the engine serves short turns beside a long prefill by itself; taken back if it fails to"
	case e.besideHelps(int64(c.opt.Target)):
		return "the engine serves short turns beside a long prefill by itself"
	}
	why := "the engine did not keep what slices computed"
	switch {
	case c.opt.NoSlices:
		why = "slices are switched off"
	case !e.facts.Slices:
		why = "slices are not possible"
	}
	switch {
	case e.canPreempt():
		return why
	case e.facts.CanPreempt:
		return why + ", and what was computed before an abort is not found again"
	}
	return why + ", and the engine cannot stop a prefill at once"
}
