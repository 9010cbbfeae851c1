package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/identity"
	"github.com/warmring/warmring/ring/prompt"
)

// request is the life of one client request.
//
//	receive ─▶ identify ─▶ place ─▶ exchange ─▶ hold ─▶ relay ─▶ done
//	   │          │          ▲         │ engine    │ first      ▲
//	   │          │          └─────────┘ failed    │ token      │
//	   └──────────┴── refuse ──────────────────────┴── whole ───┘
//
// Until the commit point, the arrow into relay or whole, an engine that fails
// only means the next one. The handler's goroutine runs everything before it;
// after it the server pulls the relay from the same goroutine. The hang-up
// watcher may call clientGone at any time in between.
type request struct {
	s    *Server
	ctx  *fasthttp.RequestCtx
	conn *clientConn // nil for connections that cannot be watched

	id      string
	started time.Time
	route   wire.Route
	model   string // as the client wrote it, bounded
	body    []byte // as it goes upstream, before splices
	decoded bool

	scratch  *scratch // nil after the commit point
	aborts   pending  // aborts in the background that still refer to this request
	identity identity.Identity
	decision ring.Decision
	charge   *ring.Charge
	up       *upstream
	x        engines.Exchange
	sniff    wire.Sniffer
	relay    relay

	attempts  int
	waited    time.Duration
	received  int    // body bytes as the client sent them
	seed      uint64 // scope of this request's keys
	tenant    uint64
	promptKey uint64 // fingerprint of the whole prompt, 0 = none
	finished  bool
	firstByte time.Duration // to the commit point; 0 before
	usage     wire.Usage
	status    int
	end       endReason
	sent      int64
	asked     bool // stream usage that the client did not ask for
	stream    bool
	answerID  string        // the id under which the client knows the answer, if the engine chose one
	rid       string        // SGLang's handle for /abort_request
	gone      chan struct{} // told once when the client has gone

	lane lanePart

	detached   bool                    // a keepalive ends it, not the handler
	current    atomic.Pointer[sending] // what is under way, for stop
	next, prev *request                // in the list of live requests
}

// sending is what must be known of an exchange under way to stop it. It does not
// change.
type sending struct {
	up  *upstream
	rid string // SGLang's handle for /abort_request; "" where closing is enough
}

// scratch is what a request needs up to its commit point and no longer: an idle
// stream must not hold a prompt's fingerprints.
type scratch struct {
	prompt  prompt.Prompt
	turn    ring.Turn
	head    []byte
	splices splices
	pieces  [][]byte
	held    []byte
	exclude []string
	kept    keptAnswer
	alias   bool   // turn.Model is another name than the client's
	broken  bool   // an engine closed without an answer once: it may have begun the work
	fixed   []byte // text of splices
}

// keptAnswer is an engine's refusal, kept while another engine is tried.
type keptAnswer struct {
	set    bool
	status int
	header []byte // raw lines
	body   []byte
}

// endReason says how a request ended, for the log, the metrics and the breaker.
type endReason uint8

const (
	endNone          endReason = iota
	endOK                      // answered as the engine meant it
	endClientError             // 4xx
	endRefused                 // this proxy's own refusal: full, draining, nobody there
	endClientClosed            // the client left
	endUpstreamReset           // the engine broke off after the commit point
	endUpstreamError           // the engine said 5xx, or an error inside a stream
	endTimeout                 // a limit of this proxy passed
	endStopped                 // this proxy was stopped and cut it
	endPanic
	endReasons // how many there are
)

func (e endReason) String() string {
	return [...]string{"none", "ok", "client_error", "refused", "client_closed", "upstream_reset", "upstream_error", "proxy_timeout", "proxy_stopped", "panic"}[e]
}

// errGone ends the handling of a request whose client has left.
var errGone = errors.New("client closed the connection")

// serve runs the request up to its commit point.
func (r *request) serve() {
	if !r.receive() {
		return
	}
	r.identify()
	if r.conn != nil {
		r.conn.arm(r.clientGone)
	}
	if every := r.s.cfg.Keepalive.Comments.Std(); every > 0 && r.stream {
		r.runWithComments(every)
		return
	}
	r.run()
}

// clientGone is called by the hang-up watcher. It does not block.
func (r *request) clientGone() {
	select {
	case r.gone <- struct{}{}:
	default:
	}
	r.stop()
}

// stop ends the engine's work on the request in the way its kind needs. It may be
// called from any goroutine that keeps the request from being recycled meanwhile,
// and does not block.
func (r *request) stop() {
	in := r.current.Load()
	if in == nil || in.rid == "" {
		r.x.Cancel()
		return
	}
	// SGLang looks for closed connections every 2 to 4 s only, and forgets the
	// name of a request whose connection is gone: ask first, then close.
	r.aborts.begin()
	r.s.abortThen(in.up, in.rid, func() {
		r.x.Cancel()
		r.aborts.end()
	})
}

// takeBack is stop for a request that will be sent again: it waits until the
// engine has ended the answer, so that no two copies live and the time that an
// abort takes is known.
func (r *request) takeBack() {
	in := r.current.Load()
	if in == nil || in.rid == "" {
		r.x.Cancel()
		return
	}
	select {
	case <-r.lane.over: // of an earlier exchange
	default:
	}
	r.aborts.begin()
	r.s.abortThen(in.up, in.rid, func() {
		late := time.NewTimer(abortPatience)
		defer late.Stop()
		select {
		case <-r.lane.over:
		case <-late.C:
		}
		r.x.Cancel()
		r.aborts.end()
	})
}

// abortPatience is how long an engine that was told to abort may take to end the
// answer: more than a step of a large prefill.
const abortPatience = 3 * time.Second

// exchangeOver tells a preemption under way that the engine's answer has ended.
func (r *request) exchangeOver() {
	select {
	case r.lane.over <- struct{}{}:
	default:
	}
}

// hasLeft tells whether the client was seen leaving.
func (r *request) hasLeft() bool {
	if r.conn == nil {
		return false
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.conn.gone
}

// run places the request and tries engines until one answers or none is left.
func (r *request) run() {
	sc := r.scratch
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
		again := r.exchange()
		for again && r.lane.back {
			again = r.sendAgain()
		}
		if !again {
			return
		}
		sc.exclude = append(sc.exclude, r.up.Name)
		if r.attempts >= r.s.cfg.Retry.Attempts {
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
			r.up = r.s.upstreams[r.decision.Engine]
			r.s.metrics.decision(r.decision.Reason)
			return nil
		}
		if errors.Is(err, ring.ErrUnknownModel) && r.model != "" && !refreshed {
			refreshed = true // an adapter may have been loaded since the lists were read
			r.refreshModels()
			continue
		}
		if !errors.Is(err, ring.ErrNoEngine) || sc.kept.set || sc.broken {
			return err
		}
		if deadline.IsZero() {
			budget := r.s.cfg.Retry.Wait.Std()
			if budget <= 0 || !r.s.waiters.enter(r.s.cfg.Retry.MaxWaiting) {
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
	r.x.Reset()
	r.prepare()
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
	err := r.x.Do(up.pool, sc.head, sc.pieces, isHead(r.ctx), s.limits)
	now := time.Now()
	if r.x.Resent {
		s.metrics.resent.Inc()
	}
	if err != nil {
		return r.failed(err, now)
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

// mayRetry tells whether an answer of this attempt may be put aside for another
// engine's.
func (r *request) mayRetry() bool {
	return r.attempts < r.s.cfg.Retry.Attempts && len(r.s.upstreams) > 1
}

// failed handles an exchange that ended without an answer.
func (r *request) failed(err error, now time.Time) (again bool) {
	if r.lane.flight.Load() == taken && !r.hasLeft() && !r.s.stopped.Load() {
		return r.tookBack()
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
	if r.scratch.broken || r.attempts >= r.s.cfg.Retry.Attempts {
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

// emptyCacheAfter is how many tokens must have been expected in an engine's cache
// for an answer that found none to be a sign of a restart: more than a block, and
// than a head that others push out.
const emptyCacheAfter = 1000

// release gives the charge back, once.
func (r *request) release(o ring.Outcome) {
	if c := r.charge; c != nil {
		r.charge = nil
		c.Release(r.s.now(), o)
		if o.CachedTokens == 0 && o.PromptTokens > 0 && r.decision.Warm > emptyCacheAfter {
			r.up.LookSoon() // it may have been restarted in less time than probes notice (C111)
		}
	}
	if p := &r.lane; p.preempted > 0 && o.CachedTokens >= 0 && o.PromptTokens > 0 {
		r.up.kept.learn(o.CachedTokens-r.decision.Warm, p.done)
	}
	r.leaveLane()
}
