package proxy

import "github.com/warmring/warmring/proxy/lane"

// What a request finds cached may be its own work: its slices computed it, or a run that was taken back. That is no hit of a
// cache, and is kept apart from the tokens that other requests have left there.

// byAborts is how many of the cached tokens of a run were probably computed by runs before it that were taken back.
func (p *lanePart) byAborts(cached int) int { return min(p.done, max(cached-p.had, 0)) }

// computed takes down what a slice that has ended has computed, as the engine counts it or, where it does not say, estimated.
func (p *lanePart) computed(s lane.Slice) {
	if s.Prompt <= 0 || s.Cached < 0 || s.Cached > s.Prompt {
		p.fresh = max(p.tokens-p.sure-p.done, 0)
		p.own += max(p.tokens-p.sure, 0)
		return
	}
	aborted := p.byAborts(s.Cached)
	if p.own == 0 {
		p.base = s.Cached - aborted
	}
	p.fresh = s.Prompt - s.Cached
	p.own += p.fresh + aborted
}

// ownOf is how many of the answer's cached tokens earlier runs of the request itself have computed.
func (p *lanePart) ownOf(cached int) int {
	if p.slices+p.preempted == 0 {
		return 0
	}
	return max(min(p.own+p.byAborts(cached), cached-p.base), 0)
}
