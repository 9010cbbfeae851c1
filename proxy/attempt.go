package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

// run places the request and tries engines until one answers or none is left.
func (r *request) run() {
	sc := r.scratch
	r.bypasses = r.route.Generation && sc.prompt.BypassesCache
	r.awaitNews()
	for {
		if err := r.place(); err != nil {
			r.unplaced(err)
			return
		}
		switch r.enterLane() {
		case laneEnded:
			return
		case laneMoved:
			continue // the engine went away while the request was held for it
		}
		r.attempts++
		switch r.inLane() {
		case laneEnded:
			return
		case laneMoved: // that was no failure of it
			r.attempts--
			continue
		}
		sc.exclude = append(sc.exclude, r.up.Name)
		if r.attempts >= r.settings.Retry.Attempts {
			r.exhausted()
			return
		}
	}
}

// place picks an engine; when there is none it waits a while for one to come
// back, unless this request has an engine's refusal to relay already.
func (r *request) place() error {
	sc := r.scratch
	t := &sc.turn
	t.Exclude = sc.exclude
	var deadline time.Time
	refreshed := false
	for {
		changed := r.s.changes.next()
		t.Now = r.s.now()
		charge, err := r.s.placer.Place(t, &r.decision)
		if err == nil {
			r.charge = charge
			up := r.s.upstreams()[r.decision.Engine]
			if up == nil { // a reload has just taken it out
				r.releaseUnsent()
				continue
			}
			r.up, r.lane.avoids = up, false
			r.s.metrics.decision(r.decision.Reason)
			return nil
		}
		if errors.Is(err, ring.ErrUnknownModel) && r.model != "" && !refreshed {
			refreshed = true // an adapter may have been loaded since the lists were read
			r.refreshModels()
			continue
		}
		if errors.Is(err, ring.ErrNoEngine) && r.lane.avoids {
			r.lane.avoids = false // only a slice failed there: it is better than none
			sc.exclude = sc.exclude[:len(sc.exclude)-1]
			t.Exclude = sc.exclude
			continue
		}
		if !errors.Is(err, ring.ErrNoEngine) || sc.kept.set || sc.broken {
			return err
		}
		if deadline.IsZero() {
			budget := r.settings.Retry.Wait.Std()
			if budget <= 0 || !r.s.waiters.enter(r.settings.Retry.MaxWaiting) {
				return err
			}
			deadline = time.Now().Add(budget)
			defer r.s.waiters.leave()
			began := time.Now()
			defer func() { r.waited += time.Since(began) }()
		}
		// Engines that failed this request may be back by then: after a wait all
		// are looked at again.
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-changed:
			timer.Stop()
			sc.exclude = sc.exclude[:0]
			t.Exclude = nil
		case <-r.gone:
			timer.Stop()
			return errGone
		case <-r.s.stopping:
			timer.Stop()
			return err
		case <-timer.C:
			return err
		}
	}
}

// refreshModels has the engines' lists of models read again before one is called
// unknown (C171). The fleet bounds how often.
func (r *request) refreshModels() {
	ctx, cancel := context.WithTimeout(context.Background(), refreshLimit)
	defer cancel()
	r.s.fleet.RefreshModels(ctx)
}

const refreshLimit = 2 * time.Second

// exchange sends the request to the placed engine and holds the answer back up
// to its commit point. It returns true if another engine may be tried.
func (r *request) exchange() (again bool) {
	defer r.exchangeOver()
	s, sc, up := r.s, r.scratch, r.up
	r.aborts.wait() // of an earlier exchange: its late cancel must not hit this one
	select {
	case <-r.lane.over: // of an earlier exchange
	default:
	}
	r.lane.ordered.Store(false)
	r.x.Reset()
	slice := r.lane.tokens > 0
	if slice && !r.prepareSlice() {
		return r.sliceOver(lane.Slice{Prompt: -1, Cached: -1, Failed: true})
	} else if !slice {
		r.prepare()
	}
	in := &up.sending
	if r.rid != "" {
		in = &sending{up, r.rid}
	}
	r.current.Store(in)
	if r.lane.flight.Load() == taken {
		return r.tookBack() // before it was sent
	}
	if r.s.stopped.Load() { // the cancel came before Reset
		r.refuse(fasthttp.StatusServiceUnavailable, "shutting_down", "warmring is shutting down")
		return false
	}
	if r.hasLeft() {
		r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
		r.left()
		return false
	}
	if sc.broken {
		s.metrics.resent.Inc()
	}
	err := r.x.Do(up.pool, sc.head, sc.pieces, isHead(r.ctx), r.settings.limits)
	now := time.Now()
	if r.x.Resent {
		s.metrics.resent.Inc()
	}
	if err != nil {
		return r.failed(err, now)
	}
	if slice {
		return r.readSlice()
	}
	a := &r.x.Answer
	switch {
	case a.Status == fasthttp.StatusTooManyRequests || a.Status == fasthttp.StatusServiceUnavailable:
		up.ReportBusy(now, retryAfter(a, now))
		if r.mayRetry() {
			return r.keep(a)
		}
	case a.Status >= 500:
		r.tellFault(now, engines.EventOf(a.Status))
		// 504 means that the engine or something before it did run out of time
		// with the work: a second run would only double the load.
		if a.Status != fasthttp.StatusGatewayTimeout && a.Status != fasthttp.StatusNotImplemented && r.attempts < 2 && r.mayRetry() {
			return r.keep(a)
		}
	default:
		up.Report(now, engines.Answered)
		if a.Status == fasthttp.StatusNotFound {
			up.RefreshModels()
		}
	}
	// HTTP/1.0 has no way to say where a stream ends but its connection's close,
	// which is no proof of a whole answer: such clients get it whole.
	if a.EventStream() && a.Status < 300 && r.ctx.Request.Header.IsHTTP11() {
		return r.hold()
	}
	return r.whole()
}

// mayRetry tells whether an answer of this attempt may be put aside for another
// engine's.
func (r *request) mayRetry() bool {
	return r.attempts < r.settings.Retry.Attempts && len(r.s.upstreams()) > 1
}

// failed handles an exchange that ended without an answer.
func (r *request) failed(err error, now time.Time) (again bool) {
	if r.lane.flight.Load() == taken && !r.hasLeft() && !r.s.stopped.Load() {
		return r.tookBack()
	}
	if r.lane.tokens > 0 && !errors.Is(err, engines.ErrCanceled) && !r.hasLeft() {
		return r.sliceBroke(err, now)
	}
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	if errors.Is(err, engines.ErrCanceled) || r.hasLeft() {
		if r.s.stopped.Load() {
			r.refuse(fasthttp.StatusServiceUnavailable, "shutting_down", "warmring is shutting down")
			return false
		}
		r.left()
		return false
	}
	r.s.log.Warn("engine failed a request", "request", r.id, "engine", r.up.Name, "attempt", r.attempts, "error", err)
	switch {
	case errors.Is(err, engines.ErrUnreachable):
		r.up.Report(now, engines.Unreachable)
		r.scratch.broken = r.scratch.broken || r.x.Resent // a kept connection may have carried it before
		return true
	case errors.Is(err, engines.ErrTimeout):
		r.answerError(fasthttp.StatusGatewayTimeout, "upstream_timeout", err.Error())
		r.finish(endTimeout, fasthttp.StatusGatewayTimeout)
		return false
	}
	// The engine may have begun the work: one more try, no third one.
	r.tellFault(now, engines.Broken)
	if r.scratch.broken || r.lane.broke || r.attempts >= r.settings.Retry.Attempts {
		r.brokeOff()
		return false
	}
	r.scratch.broken = true
	if r.x.Resent {
		r.brokeOff() // that was the second one already
		return false
	}
	return true
}

// brokeOff ends a request whose engine closed the connection without an answer
// and that must not be sent again.
func (r *request) brokeOff() {
	r.answerError(fasthttp.StatusBadGateway, "upstream_closed", fmt.Sprintf("the engine closed the connection without an answer, %s after the request came", time.Since(r.started).Round(time.Millisecond)))
	r.finish(endUpstreamReset, fasthttp.StatusBadGateway)
}

// retryAfter is how long an engine's refusal asks to stay away; 0 when it does not
// say.
func retryAfter(a *engines.Answer, now time.Time) (wait time.Duration) {
	a.EachHeader(func(name, value []byte) {
		if !foldEqual(name, "retry-after") {
			return
		}
		if seconds, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			wait = time.Duration(seconds) * time.Second
		} else if at, err := http.ParseTime(string(value)); err == nil {
			wait = max(at.Sub(now), 0)
		}
	})
	return wait
}
