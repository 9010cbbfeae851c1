package proxy

import (
	"errors"
	"fmt"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring"
)

// keep puts an engine's refusal aside and asks for another engine.
func (r *request) keep(a *engines.Answer) (again bool) {
	k := &r.scratch.kept
	k.set, k.status = true, a.Status
	k.header = append(k.header[:0], a.Header...)
	k.body = k.body[:0]
	buf := r.scratch.buffer()
	for len(k.body) < maxKept {
		n, err := r.x.Read(buf)
		k.body = append(k.body, buf[:n]...)
		if err != nil {
			break
		}
	}
	r.x.Close()
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	return true
}

const maxKept = 256 << 10

// exhausted ends a request that has used up its attempts.
func (r *request) exhausted() {
	if r.scratch.kept.set {
		r.answerKept()
		return
	}
	r.noneAnswered()
}

// noneAnswered refuses a request that every engine tried has failed.
func (r *request) noneAnswered() {
	r.refuse(fasthttp.StatusServiceUnavailable, "no_engine", fmt.Sprintf("%d engines were tried and none answered", r.attempts))
}

// unplaced ends a request that no engine is left for.
func (r *request) unplaced(err error) {
	switch {
	case errors.Is(err, errGone):
		r.left()
	case r.scratch.kept.set:
		r.answerKept()
	case r.scratch.broken:
		r.brokeOff()
	case errors.Is(err, ring.ErrUnknownModel):
		r.unknownModel()
	case r.attempts > 0:
		r.noneAnswered()
	default:
		r.refuse(fasthttp.StatusServiceUnavailable, "no_engine", "no engine that serves this model is usable right now")
	}
}

// left ends a request whose client has gone before the commit point.
func (r *request) left() {
	r.finish(endClientClosed, statusClientClosed)
	r.ctx.Response.Reset()
	r.ctx.SetStatusCode(statusClientClosed)
	r.ctx.SetConnectionClose()
}

// statusClientClosed is nginx's word for a client that left; nobody receives it.
const statusClientClosed = 499

// release gives the charge back, once.
func (r *request) release(o ring.Outcome) {
	if c := r.charge; c != nil {
		r.charge = nil
		o.Bypassed = r.bypasses
		c.Release(r.s.now(), o)
		if o.CachedTokens == 0 && !r.bypasses && o.PromptTokens > 0 && r.decision.Warm > emptyCacheAfter {
			r.up.LookSoon() // it may have been restarted in less time than probes notice (C111)
		}
	}
	if o.CachedTokens > 0 && !r.up.caches.Load() {
		r.up.caches.Store(true)
	}
	if o.PromptTokens > 0 {
		r.learnKept(o.CachedTokens)
	}
	r.leaveLane()
}

// emptyCacheAfter is how many tokens must have been expected in an engine's cache
// for an answer that found none to be a sign of a restart: more than a block, and
// than a head that others push out.
const emptyCacheAfter = 1000
