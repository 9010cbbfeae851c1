package proxy

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
)

const (
	// maxHeld bounds the events held back before the first token. The preamble of
	// a Responses stream repeats instructions and tools: it can be as large as
	// they are.
	maxHeld = 4 << 20
	// maxWhole bounds a complete answer that is held before its first byte is
	// released; a larger one is committed to and relayed.
	maxWhole = 32 << 20
	readSize = 16 << 10
)

// buffer is a request's reading buffer up to its commit point.
func (sc *scratch) buffer() []byte {
	if cap(sc.held) < readSize {
		sc.held = make([]byte, 0, 2*readSize)
	}
	return sc.held[:readSize]
}

// hold reads an event stream up to its first token-bearing event and commits to
// it. An error that the engine names inside the stream before that counts as the
// status it names: vLLM and SGLang refuse under a 200 once the stream is open.
func (r *request) hold() (again bool) {
	sc := r.scratch
	sniffing := r.x.Answer.Identity() && r.route.Generation
	r.sniff.Reset(r.route.Family)
	held := sc.held[:0]
	var end error
	for {
		if cap(held)-len(held) < 4096 {
			grown := make([]byte, len(held), 2*cap(held)+readSize)
			copy(grown, held)
			held = grown
		}
		n, err := r.x.Read(held[len(held):cap(held)])
		if n > 0 && sniffing {
			_, _ = r.sniff.Write(held[len(held) : len(held)+n])
		}
		held = held[:len(held)+n]
		if err != nil {
			end = err
			break
		}
		if !sniffing || r.sniff.Committed() || len(held) > maxHeld {
			break
		}
		if _, failed := r.sniff.Failure(); failed {
			break
		}
	}
	sc.held = held
	if end == io.EOF && sniffing {
		r.relay.inEvent = !r.sniff.AtBoundary()
		_ = r.sniff.Close()
		if !r.sniff.Committed() && (len(held) == 0 || r.endedEarly()) {
			end = fmt.Errorf("reading from %s: %w before the first token", r.up.Name, engines.ErrTruncated)
		}
	}
	if !r.sniff.Committed() && r.lane.flight.Load() == taken {
		return r.tookBack()
	}
	if failure, failed := r.sniff.Failure(); failed && sniffing && !r.sniff.Committed() {
		if r.failedInside(failure, held) {
			return true
		}
	}
	if end != nil && end != io.EOF && !r.sniff.Committed() {
		// It broke before the first token: nothing was released, so the request
		// can go elsewhere.
		r.x.Close()
		return r.failed(end, time.Now())
	}
	if !r.commit() { // a preemption came first
		if held, end = r.outlive(held, end); end != io.EOF || !r.endedWhole() {
			return r.tookBack()
		}
		r.lane.flight.Store(committed)
	}
	r.commitStream(held, end)
	return false
}

// failedInside deals with an error inside a 200 stream before its first token.
func (r *request) failedInside(f wire.Failure, held []byte) (again bool) {
	now := time.Now()
	switch {
	case f.Status == fasthttp.StatusTooManyRequests || f.Status == fasthttp.StatusServiceUnavailable:
		r.up.Report(now, engines.Refused)
	case f.Status >= 500:
		r.tellFault(now, engines.EventOf(f.Status))
	default:
		return false // the client's own mistake: relayed as it came, no second try
	}
	// One more engine, not all of them: an error that comes back is deterministic
	// and its message belongs to the client.
	if r.attempts >= 2 || !r.mayRetry() {
		return false
	}
	k := &r.scratch.kept
	k.set, k.status = true, r.x.Answer.Status
	k.header = append(k.header[:0], r.x.Answer.Header...)
	k.body = append(k.body[:0], held...)
	for len(k.body) < maxKept { // the rest of what it has to say, [DONE] most often
		n, err := r.x.Read(held[:cap(held)])
		k.body = append(k.body, held[:n]...)
		if err != nil {
			break
		}
	}
	r.x.Close()
	r.release(ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Failed: true})
	return true
}

// commitStream is the commit point of a stream: what was held goes out first and
// everything after it as it comes. end is how the engine's answer ended, if it
// did while being held.
func (r *request) commitStream(held []byte, end error) {
	now := time.Now()
	r.firstByte = now.Sub(r.started)
	r.status = r.x.Answer.Status
	if r.sniff.Committed() {
		r.prefilled()
	}
	resp := &r.ctx.Response
	copyAnswerHead(&resp.Header, &r.x.Answer)
	if len(resp.Header.Peek("X-Accel-Buffering")) == 0 {
		// Without it an nginx in front collects the stream in its buffers.
		resp.Header.Set("X-Accel-Buffering", "no")
	}
	r.ownHeaders()
	rl := &r.relay
	rl.r = r
	rl.sniffing = r.x.Answer.Identity() && r.route.Generation
	rl.end = end
	rl.begin(held)
	r.x.DropHead()
	r.dropPrompt()
	// Chunked even when the engine knew the length: only so is each read flushed,
	// and only so can an error be added.
	resp.SetBodyStream(rl, -1)
}

// whole reads a complete answer and commits to it. Nothing of it is released
// before its end, so an engine that dies in the middle costs a retry, not a
// broken answer.
func (r *request) whole() (again bool) {
	sc := r.scratch
	a := &r.x.Answer
	resp := &r.ctx.Response
	if isHead(r.ctx) {
		r.status = a.Status
		copyAnswerHead(&resp.Header, a)
		r.ownHeaders()
		resp.SkipBody = true
		if a.ContentLength >= 0 {
			resp.Header.SetContentLength(int(a.ContentLength))
		}
		r.x.Close()
		r.completed(nil)
		return false
	}
	buf := sc.buffer()
	total := 0
	resp.ResetBody()
	var end error
	for {
		n, err := r.x.Read(buf)
		total += n
		if n > 0 {
			resp.AppendBody(buf[:n])
		}
		if err != nil {
			end = err
			break
		}
		if total > maxWhole {
			if !r.commit() {
				resp.ResetBody()
				return r.tookBack()
			}
			r.commitLarge(append([]byte(nil), resp.Body()...))
			return false
		}
	}
	if end != io.EOF {
		resp.ResetBody()
		r.x.Close()
		return r.failed(end, time.Now())
	}
	if !r.commitWhole(resp.Body()) {
		resp.ResetBody()
		return r.tookBack()
	}
	r.status = a.Status
	r.firstByte = time.Since(r.started)
	// No FirstToken here: the time to a complete answer holds the decoding too and
	// would teach the placer a prefill rate that is far too low.
	copyAnswerHead(&resp.Header, a)
	if bodyless(a.Status) {
		resp.SkipBody = true
	}
	r.ownHeaders()
	var body []byte
	if a.Identity() {
		body = resp.Body()
	}
	r.x.Close()
	r.completed(body)
	return false
}

// commitLarge commits to an answer that is too large to hold.
func (r *request) commitLarge(held []byte) {
	r.firstByte = time.Since(r.started)
	r.status = r.x.Answer.Status
	resp := &r.ctx.Response
	copyAnswerHead(&resp.Header, &r.x.Answer)
	r.ownHeaders()
	length := int(r.x.Answer.ContentLength)
	rl := &r.relay
	rl.r = r
	rl.framed = length >= 0
	rl.begin(held)
	r.x.DropHead()
	r.dropPrompt()
	resp.SetBodyStream(rl, length)
}

// completed ends a request whose whole answer is in the response.
func (r *request) completed(body []byte) {
	o := ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1}
	if r.route.Generation && r.status < 300 && body != nil {
		var id []byte
		if r.stream && isEvents(r.ctx.Response.Header.ContentType()) { // a stream held whole, for HTTP/1.0
			r.sniff.Reset(r.route.Family)
			_, _ = r.sniff.Write(body)
			_ = r.sniff.Close()
			r.usage, id = r.sniff.Usage(), r.sniff.ResponseID()
		} else {
			r.usage, id = wire.ReadAnswer(r.route.Family, body)
		}
		r.learnResponse(id)
		o = ring.Outcome{PromptTokens: r.usage.Prompt, CachedTokens: r.usage.Cached, OutputTokens: r.usage.Output, Prefilled: true}
	} else {
		o.Prefilled = r.status < 300
		o.Failed = r.status >= 400
	}
	r.release(o)
	r.sent = int64(len(r.ctx.Response.Body()))
	end := endOK
	switch {
	case r.status >= 500:
		end = endUpstreamError
	case r.status == fasthttp.StatusTooManyRequests:
		end = endUpstreamError
	case r.status >= 400:
		end = endClientError
	}
	r.finish(end, r.status)
}

func isEvents(contentType []byte) bool {
	return bytes.HasPrefix(contentType, []byte("text/event-stream"))
}

func bodyless(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}

func isHead(ctx *fasthttp.RequestCtx) bool { return ctx.Request.Header.IsHead() }
