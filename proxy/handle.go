package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
)

// handle is the entry of every well-formed request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	r := s.acquire(ctx)
	defer func() {
		if p := recover(); p != nil {
			s.panicked(r, p)
		}
		if r.detached || (r.ctx.Response.IsBodyStream() && r.scratch == nil) {
			return // the relay ends it
		}
		s.recycle(r)
	}()
	r.serve()
}

// panicked answers a request whose handling failed by a mistake of ours.
func (s *Server) panicked(r *request, p any) {
	s.metrics.panics.Inc()
	s.log.Error("panic while handling a request", "request", r.id, "panic", fmt.Sprint(p), "stack", stack())
	defer func() {
		if again := recover(); again != nil { // it must not take the process along
			s.log.Error("panic while ending a request that panicked", "request", r.id, "panic", fmt.Sprint(again), "stack", stack())
			r.ctx.Response.Reset()
			r.ctx.SetStatusCode(fasthttp.StatusInternalServerError)
			r.ctx.SetConnectionClose()
		}
	}()
	r.x.Cancel()
	r.x.Close()
	if r.charge != nil {
		r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	}
	r.answerError(fasthttp.StatusInternalServerError, "internal_error", "warmring failed to handle this request; it is in the log as "+r.id)
	r.finish(endPanic, fasthttp.StatusInternalServerError)
}

// acquire begins a request.
func (s *Server) acquire(ctx *fasthttp.RequestCtx) *request {
	r := s.requests.Get().(*request)
	r.ctx = ctx
	r.settings = s.settings.Load()
	r.started = time.Now()
	if r.conn, _ = ctx.Conn().(*clientConn); r.conn != nil {
		r.conn.nextRequest()
	}
	r.scratch = s.scratches.Get().(*scratch)
	h := &ctx.Request.Header
	r.id = s.requestID(h)
	path, _ := splitURI(h.RequestURI())
	r.route = wire.RouteOf(h.Method(), path)
	r.usage = wire.Usage{Prompt: -1, Cached: -1, Output: -1}
	s.live.add(r)
	return r
}

// recycle ends a request for good.
func (s *Server) recycle(r *request) {
	if r.conn != nil {
		r.conn.disarm()
	}
	s.live.remove(r)
	r.x.Reset()
	if r.scratch != nil {
		s.recycleScratch(r.scratch)
	}
	if r.aborts.busy() {
		return // an abort under way will cancel its exchange once more
	}
	select {
	case <-r.gone:
	default:
	}
	select {
	case <-r.lane.wake:
	default:
	}
	*r = request{s: s, gone: r.gone, sniff: r.sniff, lane: lanePart{wake: r.lane.wake, over: r.lane.over}}
	s.requests.Put(r)
}

func (s *Server) recycleScratch(sc *scratch) {
	sc.turn = ring.Turn{}
	sc.exclude = sc.exclude[:0]
	clear(sc.pieces)
	sc.pieces = sc.pieces[:0]
	sc.splices = splices{}
	sc.alias, sc.broken = false, false
	k := &sc.kept
	*k = keptAnswer{header: k.header[:0], body: k.body[:0]}
	if cap(k.body) > 64<<10 {
		k.body = nil
	}
	if cap(sc.held) > 64<<10 {
		sc.held = nil
	}
	sc.dropSlice()
	s.scratches.Put(sc)
}

// retryAfter is how many seconds a refused client should stay away: a little
// more than a probe takes, spread so that they do not all come back at once.
func (s *Server) retryAfter() int { return 1 + rand.IntN(3) }

// knownModels lists a few names for an error message.
func (s *Server) knownModels() string {
	names := s.fleet.ModelNames()
	if len(names) == 0 {
		return "none yet"
	}
	if len(names) > 20 {
		return strings.Join(names[:20], ", ") + fmt.Sprintf(" and %d more", len(names)-20)
	}
	return strings.Join(names, ", ")
}
