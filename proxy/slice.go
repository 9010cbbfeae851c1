package proxy

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring/prompt"
)

// Slices. While short turns are there, the lanes send a long prompt as growing
// prefixes of itself: requests of their own to the same engine, each with one
// token of output that nobody sees, between which the short turns run. What a
// slice computes, the next one and at last the request itself find in the
// engine's cache. Whatever an engine says to a slice but the answer that it
// asks for ends slicing of this request, not the request, which goes whole: what
// it says to that alone is the client's. Some engines fail only at slices, such as
// those that break at answers which are not streamed. A slice is no attempt.

// What is sent in slices of one request, which each carry the prefix again, is bounded in bytes: by the greater of these,
// then it goes whole. An engine whose front end is slow with large bodies would otherwise be sent ever smaller steps.
const (
	maxSentInSlices = 64 << 20
	maxSentTimes    = 16 // its body
)

// maxSliceAnswer bounds the answer to a slice: a Responses answer repeats
// instructions and tools.
const maxSliceAnswer = 4 << 20

// prepareSlice builds the request for the slice that was admitted, from the body
// as it goes to the engine. It returns false if there is no such slice.
func (r *request) prepareSlice() bool {
	sc := r.scratch
	sc.splices.n = 0
	sc.fixed = sc.fixed[:0]
	r.asked, r.rid = false, ""
	r.spliceModel()
	r.spliceBilling()
	body := r.body
	if sc.splices.n > 0 {
		sc.forward = sc.forward[:0]
		pieces, _ := sc.splices.pieces(sc.pieces[:0], r.body)
		for _, piece := range pieces {
			sc.forward = append(sc.forward, piece...)
		}
		body = sc.forward
	}
	share := float64(r.lane.tokens) / float64(max(r.decision.Prompt, 1))
	var ok bool
	sc.slice, ok = prompt.AppendSlice(sc.slice[:0], body, r.route.Family, share)
	open := bytes.IndexByte(sc.slice, '{') + 1
	if !ok || open == 0 || r.lane.sliceBytes+len(sc.slice) > max(maxSentInSlices, maxSentTimes*len(r.body)) {
		return false
	}
	r.lane.sliceBytes += len(sc.slice)
	sc.pieces = append(sc.pieces[:0], sc.slice)
	length := len(sc.slice)
	if r.nameRequest() {
		sc.pieces = append(sc.pieces[:0], sc.slice[:open], sc.fixed, sc.slice[open:])
		length += len(sc.fixed)
	}
	r.lane.sliceNo++
	r.prepareHead(length)
	return true
}

// readSlice reads the whole answer to a slice. It goes nowhere but into the
// lanes' and the placer's books.
func (r *request) readSlice() (again bool) {
	sc, a := r.scratch, &r.x.Answer
	answer := sc.held[:0]
	for {
		if cap(answer)-len(answer) < 4096 {
			grown := make([]byte, len(answer), 2*cap(answer)+readSize)
			copy(grown, answer)
			answer = grown
		}
		n, err := r.x.Read(answer[len(answer):cap(answer)])
		answer = answer[:len(answer)+n]
		if err == io.EOF {
			break
		} else if err != nil {
			sc.held = answer
			return r.failed(err, time.Now())
		}
		if len(answer) > maxSliceAnswer {
			break
		}
	}
	sc.held = answer
	s := lane.Slice{Prompt: -1, Cached: -1}
	switch {
	case a.Status >= 300 || len(answer) > maxSliceAnswer || isEvents(a.ContentType):
		s.Failed = true
	case a.Identity():
		s.Failed = wire.SaysError(answer)
		u, _ := wire.ReadAnswer(r.route.Family, answer)
		s.Prompt, s.Cached = u.Prompt, u.Cached
	}
	if s.Failed {
		s.Refused = true
		r.up.metrics.slicesFailed.Inc()
	} else {
		r.up.Report(time.Now(), engines.Answered)
	}
	if r.lane.flight.Load() == taken && r.up.DetectedKind() == engines.SGLang && r.lane.ordered.Load() && !s.Failed && (s.Prompt < 0 || r.endedBy(answer) == wire.EndedAborted) {
		return r.tookBack()
	}
	return r.sliceOver(s)
}

// sliceBroke deals with a slice that ended without an answer. Where the engine has
// said nothing in time it is sent the request itself next. Where it could not be
// reached or broke off the request is placed anew, elsewhere if there is another
// engine.
func (r *request) sliceBroke(err error, now time.Time) (again bool) {
	r.up.metrics.slicesFailed.Inc()
	if errors.Is(err, engines.ErrTimeout) {
		return r.sliceOver(lane.Slice{Prompt: -1, Cached: -1, Failed: true, Refused: true})
	}
	r.s.log.Warn("engine failed a slice of a request", "request", r.id, "engine", r.up.Name, "error", err)
	p := &r.lane
	p.back, p.whole = bySliceBroken, true
	if errors.Is(err, engines.ErrUnreachable) {
		r.up.Report(now, engines.Unreachable)
	} else {
		p.broke = true
		r.tellFault(now, engines.Broken)
	}
	r.x.Close()
	r.releaseUnsent()
	p.avoids = true
	r.scratch.exclude = append(r.scratch.exclude, r.up.Name)
	return true
}

// sliceOver notes what became of a slice that has ended. A preemption that comes
// from now on finds nothing to take back; one that came before takes nothing
// away any more.
func (r *request) sliceOver(s lane.Slice) (again bool) {
	p := &r.lane
	p.flight.CompareAndSwap(inEngine, inProxy)
	r.x.Close()
	p.back, p.result = bySlice, s
	if s.Failed {
		return true
	}
	p.took = time.Since(p.sentAt)
	r.up.metrics.slices.Inc()
	p.computed(s)
	p.slices++
	r.learnKept(s.Cached)
	p.had, p.sure, p.done = p.tokens, p.tokens, 0
	if s.Prompt > 0 {
		p.had = s.Prompt
	}
	r.charge.Progress(r.s.now(), p.tokens)
	return true
}

// dropSlice lets go of a large slice's memory: the request itself goes next, or
// nothing.
func (sc *scratch) dropSlice() {
	if cap(sc.slice) > 64<<10 {
		sc.slice = nil
	}
	if cap(sc.forward) > 64<<10 {
		sc.forward = nil
	}
}
