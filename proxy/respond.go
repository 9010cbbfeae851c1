package proxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/identity"
	"github.com/warmring/warmring/ring/prompt"
)

// refuse answers a request that no engine answered and ends it.
func (r *request) refuse(status int, code, message string) {
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	end := endRefused
	if status < 500 && status != fasthttp.StatusTooManyRequests {
		end = endClientError
	}
	r.answerError(status, code, message)
	r.finish(end, status)
}

// answerError writes an error of the proxy's own in the family's shape.
func (r *request) answerError(status int, code, message string) {
	resp := &r.ctx.Response
	closing := resp.ConnectionClose()
	resp.Reset()
	if closing {
		resp.SetConnectionClose()
	}
	r.status, r.refusal = status, code
	resp.SetStatusCode(status)
	resp.Header.SetContentType("application/json")
	body := wire.ErrorBody(r.route.Family, status, code, message)
	resp.SetBody(body)
	r.sent = int64(len(body))
	if status == fasthttp.StatusServiceUnavailable || status == fasthttp.StatusTooManyRequests {
		seconds := r.s.retryAfter()
		if r.comeBack > 0 {
			seconds = int((r.comeBack + time.Second - 1) / time.Second)
		}
		resp.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	r.ownHeaders()
}

// answerKept relays the refusal of an engine that could not be bettered.
func (r *request) answerKept() {
	k := &r.scratch.kept
	resp := &r.ctx.Response
	resp.Reset()
	a := engines.Answer{Status: k.status, Header: k.header}
	copyAnswerHead(&resp.Header, &a)
	resp.SetBody(k.body)
	r.status = k.status
	r.sent = int64(len(k.body))
	r.ownHeaders()
	r.finish(endUpstreamError, k.status)
}

// unknownModel answers a request for a model that no engine lists.
func (r *request) unknownModel() {
	if r.model == "" {
		r.refuse(fasthttp.StatusServiceUnavailable, "no_engine", "no engine is usable right now")
		return
	}
	r.refuse(fasthttp.StatusNotFound, "model_not_found", fmt.Sprintf("the model %q does not exist here; known: %s", r.model, r.s.knownModels()))
}

// answersModels answers for the list of models, the union of what the engines
// serve, and for one card of it.
func (r *request) answersModels(path []byte) bool {
	var body []byte
	switch r.route.Template {
	case "/v1/models":
		body = r.s.fleet.ModelsJSON()
	case "/v1/models/{id}":
		_, id, _ := bytes.Cut(path, []byte("/models/"))
		name, err := url.PathUnescape(string(bytes.TrimSuffix(id, []byte("/"))))
		if err != nil {
			return false
		}
		card, ok := r.s.fleet.ModelJSON(name)
		if !ok {
			r.refreshModels()
			card, ok = r.s.fleet.ModelJSON(name)
		}
		if !ok {
			r.model = name[:min(len(name), 256)]
			r.unknownModel()
			return true
		}
		body = card
	default:
		return false
	}
	resp := &r.ctx.Response
	resp.Header.SetContentType("application/json")
	resp.SetBody(body)
	r.sent = int64(len(body))
	r.ownHeaders()
	r.finish(endOK, fasthttp.StatusOK)
	return true
}

// ownHeaders adds what the proxy tells about its decision.
func (r *request) ownHeaders() {
	h := &r.ctx.Response.Header
	switch id := h.Peek("X-Request-Id"); {
	case len(id) > 0 && string(id) != r.id:
		r.answerID = string(id[:min(len(id), 128)])
	case len(id) == 0 && r.settings.Headers.RequestID:
		h.Set("X-Request-Id", r.id)
	}
	if !r.settings.Headers.Response || r.up == nil {
		return
	}
	d := &r.decision
	h.Set("X-Warmring-Engine", r.up.Name)
	h.Set("X-Warmring-Reason", d.Reason.String())
	var buf [48]byte
	if d.Session != 0 {
		h.SetBytesV("X-Warmring-Session", appendHex16(buf[:0], d.Session))
	}
	if r.lane.preempted > 0 {
		h.SetBytesV("X-Warmring-Preempted", strconv.AppendInt(buf[:0], int64(r.lane.preempted), 10))
	}
	if r.lane.slices > 0 {
		h.SetBytesV("X-Warmring-Slices", strconv.AppendInt(buf[:0], int64(r.lane.slices), 10))
	}
	if r.lane.heldFor >= time.Millisecond {
		h.SetBytesV("X-Warmring-Held", strconv.AppendFloat(buf[:0], r.lane.heldFor.Seconds(), 'f', 3, 64))
	}
	if r.route.Generation {
		warm := strconv.AppendInt(buf[:0], int64(d.Warm), 10)
		warm = append(warm, '/')
		h.SetBytesV("X-Warmring-Warm", strconv.AppendInt(warm, int64(d.Prompt), 10))
	}
}

func appendHex16(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}

// dropPrompt lets go of everything that only a replay would need: the prompt can
// be megabytes and the stream hours.
func (r *request) dropPrompt() {
	sc := r.scratch
	r.scratch = nil
	r.body = nil
	r.ctx.Request.ResetBody()
	r.s.recycleScratch(sc)
}

// turnOf is the session that a response belongs to, with the scope of its key.
type turnOf struct{ session, seed uint64 }

// learnResponse remembers whose turn produced a Responses API id, so that a
// request that continues it by previous_response_id finds its session.
func (r *request) learnResponse(id []byte) {
	if len(id) == 0 || r.decision.Session == 0 {
		return
	}
	turn := turnOf{r.decision.Session, r.seed}
	r.s.previous.Add(identity.Key(r.seed, id), turn)
	// Requests for the response itself name no model.
	r.s.previous.Add(identity.Key(prompt.Seed(r.tenant, nil), id), turn)
}

// finish ends the request's accounting, once: metrics, the access log and the
// record for /api/explain.
func (r *request) finish(end endReason, status int) {
	if r.finished {
		return
	}
	r.finished = true
	r.end, r.status = end, status
	r.own = r.lane.ownOf(r.usage.Cached)
	if r.conn != nil {
		r.conn.disarm()
	}
	r.current.Store(nil)
	took := time.Since(r.started)
	s := r.s
	s.metrics.finished(r, took)
	s.recent.add(r, took)
	if !r.settings.Log.Access {
		return
	}
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("request", r.id),
		slog.String("method", methodLabel(r.ctx.Method())),
		slog.String("route", r.route.Template),
		slog.Int("status", status),
		slog.String("end", end.String()),
		slog.Float64("took_ms", milliseconds(took)))
	if r.answerID != "" {
		attrs = append(attrs, slog.String("answer", r.answerID))
	}
	if r.model != "" {
		attrs = append(attrs, slog.String("model", r.model))
	}
	if r.up != nil {
		d := &r.decision
		attrs = append(attrs,
			slog.String("engine", r.up.Name),
			slog.String("reason", d.Reason.String()),
			slog.Int("attempts", r.attempts))
		if r.route.Generation {
			attrs = append(attrs,
				slog.String("session", string(appendHex16(nil, d.Session))),
				slog.Int("turn", d.Turn),
				slog.Int("warm", d.Warm),
				slog.Int("fresh", max(d.Prompt-d.Warm, 0)))
		}
	}
	if r.usage.Prompt >= 0 && r.route.Generation {
		attrs = append(attrs, slog.Int("prompt", r.usage.Prompt))
		if r.usage.Cached >= 0 {
			attrs = append(attrs, slog.Int("cached", r.usage.Cached-r.own))
			if r.own > 0 {
				attrs = append(attrs, slog.Int("own", r.own))
			}
		}
		attrs = append(attrs, slog.Int("output", r.usage.Output))
	}
	if r.refusal != "" {
		attrs = append(attrs, slog.String("error", r.refusal))
	}
	attrs = r.laneAttrs(attrs)
	if r.waited > 0 {
		attrs = append(attrs, slog.Float64("wait_ms", milliseconds(r.waited)))
	}
	if r.firstByte > 0 {
		attrs = append(attrs, slog.Float64("ttft_ms", milliseconds(r.firstByte)))
	}
	attrs = append(attrs, slog.Int("bytes_in", r.received), slog.Int64("bytes_out", r.sent))
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// laneAttrs tell what the lanes did with the request: nothing for a turn that
// passed.
func (r *request) laneAttrs(attrs []slog.Attr) []slog.Attr {
	p := &r.lane
	if l := &p.status; l.State != "" && l.Class == lane.Long {
		reason := "free"
		if p.admitted {
			reason = p.reason.String()
		}
		attrs = append(attrs, slog.String("lane", l.Class.String()), slog.String("lane_reason", reason),
			slog.Float64("held_ms", inMilliseconds(l.HeldSeconds)), slog.Float64("extra_ms", inMilliseconds(l.ExtraSeconds)))
	}
	if p.slices > 0 {
		attrs = append(attrs, slog.Int("slices", p.slices))
	}
	if p.preempted > 0 {
		attrs = append(attrs, slog.Int("preempted", p.preempted))
	}
	return attrs
}

// milliseconds rounds to a microsecond, which is what a log line needs.
func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// inMilliseconds is the same for a number of seconds.
func inMilliseconds(seconds float64) float64 { return math.Round(seconds*1e6) / 1e3 }

// methodLabel bounds the method's label set.
func methodLabel(m []byte) string {
	for _, known := range [...]string{"POST", "GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH"} {
		if string(m) == known {
			return known
		}
	}
	return "other"
}

// requestID takes the client's id for the request if it is fit to be logged and
// echoed, else a new one.
func (s *Server) requestID(h *fasthttp.RequestHeader) string {
	if id := h.Peek("X-Request-Id"); len(id) > 0 && len(id) <= 128 && bytes.IndexFunc(id, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) < 0 {
		return string(id)
	}
	return string(appendHex16(make([]byte, 0, 16), s.ids.next()))
}
