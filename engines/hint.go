package engines

// LookSoon has the engine probed and its facts read as soon as the limit of two probes a second allows, and within a second, because
// somebody saw a sign of a change: another proxy, or a request that met a dead connection or a cache that was emptier than it should be.
// What others saw is a reason to look, never a fact. Returns at once; bursts are one.
func (e *Engine) LookSoon() {
	if e.wantFacts.Swap(true) && e.wantProbe.Load() {
		return // asked for already
	}
	e.wantProbe.Store(true)
	e.nudge()
}
