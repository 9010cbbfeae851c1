package engines

// LookSoon has the engine probed and its facts read as soon as the limit of two probes a second allows, because somebody else saw it
// change. What others saw is a reason to look, never a fact. Returns at once; bursts are one.
func (e *Engine) LookSoon() {
	e.wantFacts.Store(true)
	e.wantProbe.Store(true)
	e.nudge()
}
