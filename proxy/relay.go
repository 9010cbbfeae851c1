package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
)

// relay is the body of a committed answer. The server pulls it: each Read is one
// read of the engine's connection, straight into the server's buffer, and one
// write to the client, so nothing waits for more to come and a slow client slows
// the engine, not the memory. Bytes are looked at in passing and never changed,
// but for the usage chunk that the proxy itself asked for.
type relay struct {
	r        *request
	held     []byte // what came before the commit point, not yet released
	framed   bool   // the answer has a content-length: nothing can be added
	sniffing bool
	filter   *wire.UsageFilter // nil: nothing is taken out
	filtered []byte            // output of filter, not yet released
	raw      []byte            // input of filter
	inEvent  bool              // the engine's answer ended inside an event
	end      error             // set once the engine's answer has ended
	last     []byte            // the error event, not yet released
	told     bool
	deadline time.Time // of the client's next write
	size     [20]byte  // the head of a chunk, and its
	pieces   [2][]byte // rest: see emit
}

// errBrokenEnd makes the server cut the connection instead of ending the body:
// most clients take a clean end for a complete answer.
var errBrokenEnd = errors.New("the engine broke off: the answer is cut on purpose")

// begin takes over what was held.
func (l *relay) begin(held []byte) {
	if l.r.asked && l.sniffing {
		l.filter = &wire.UsageFilter{}
		l.filter.Reset()
		l.held = append(l.held[:0], l.filter.Filter(nil, held)...)
		if l.end != nil {
			l.held = l.filter.Flush(l.held)
		}
		return
	}
	l.held = append([]byte(nil), held...)
}

// Read gives the next bytes for the client.
func (l *relay) Read(p []byte) (int, error) {
	n, err := l.next(p)
	if n > 0 {
		l.extendDeadline()
	}
	return n, err
}

func (l *relay) next(p []byte) (int, error) {
	if n := l.take(p, &l.held); n > 0 {
		return n, nil
	}
	for {
		if n := l.take(p, &l.filtered); n > 0 {
			return n, nil
		}
		if l.end != nil {
			return l.ending(p)
		}
		if l.filter == nil {
			n, err := l.r.x.Read(p)
			l.passed(p[:n], err)
			if n > 0 {
				l.r.sent += int64(n)
				return n, nil
			}
			continue
		}
		if l.raw == nil {
			l.raw = make([]byte, 4096)
		}
		n, err := l.r.x.Read(l.raw)
		l.passed(l.raw[:n], err)
		l.filtered = l.filter.Filter(l.filtered[:0], l.raw[:n])
		if l.end != nil {
			l.filtered = l.filter.Flush(l.filtered)
		}
	}
}

// take moves bytes from one of the relay's buffers to p.
func (l *relay) take(p []byte, from *[]byte) int {
	n := copy(p, *from)
	if n == len(*from) {
		*from = (*from)[:0]
		if from == &l.held {
			l.held = nil
		}
	} else {
		*from = (*from)[n:]
	}
	l.r.sent += int64(n)
	return n
}

// passed looks at bytes that came from the engine and notes their end.
func (l *relay) passed(p []byte, err error) {
	r := l.r
	if l.sniffing && len(p) > 0 {
		before := r.sniff.Committed()
		_, _ = r.sniff.Write(p)
		if !before && r.sniff.Committed() {
			r.prefilled()
		}
	}
	if err != nil {
		l.end = err
		if l.sniffing {
			l.inEvent = !r.sniff.AtBoundary()
			if err == io.EOF {
				_ = r.sniff.Close()
			}
		}
	}
}

// ending gives the error event of a broken answer, then its end.
func (l *relay) ending(p []byte) (int, error) {
	r := l.r
	if l.end == io.EOF && !l.endedEarly() {
		return 0, io.EOF
	}
	if !l.told {
		l.told = true
		if r.hasLeft() || (errors.Is(l.end, engines.ErrCanceled) && !r.s.stopped.Load()) {
			r.end = endClientClosed
			return 0, errBrokenEnd
		}
		r.end = endUpstreamReset
		if errors.Is(l.end, engines.ErrTimeout) {
			r.end = endTimeout
		}
		message := "the engine broke off in the middle of its answer"
		if r.s.stopped.Load() {
			message = "warmring was stopped in the middle of the answer"
			r.end = endStopped
		}
		if l.sniffing && !l.framed && r.x.Answer.Status < 300 {
			if l.inEvent {
				l.last = append(l.last, "\n\n"...) // the event under way will not be completed
			}
			l.last = append(l.last, r.sniff.ErrorEvent(502, "", message)...)
		}
		if r.end == endUpstreamReset {
			r.tellFault(time.Now(), engines.Broken)
		}
		if r.end != endStopped {
			r.s.log.Warn("engine broke off after the commit point", "request", r.id, "engine", r.up.Name, "error", l.end)
		}
	}
	if n := copy(p, l.last); n > 0 {
		l.last = l.last[n:]
		r.sent += int64(n)
		return n, nil
	}
	return 0, errBrokenEnd
}

// endedEarly tells that a stream ended cleanly without its family's final event:
// the engine's process died inside the answer.
func (l *relay) endedEarly() bool { return l.sniffing && l.r.endedEarly() }

// endedEarly tells that the stream read so far, which has ended, lacks its
// family's final event although the engine is known to send them.
func (r *request) endedEarly() bool {
	if !r.stream {
		return false
	}
	known := &r.up.finishes[r.route.Family]
	if r.sniff.Finished() {
		known.Store(true)
		return false
	}
	if _, failed := r.sniff.Failure(); failed {
		return false
	}
	if k := r.up.DetectedKind(); k == engines.VLLM || k == engines.SGLang {
		return true
	}
	return known.Load()
}

// extendDeadline bounds how long the client may refuse to take the next bytes.
// Deadlines are not free: they are moved on when an eighth of them has passed.
func (l *relay) extendDeadline() {
	limit := l.r.settings.Timeouts.ClientWrite.Std()
	if limit <= 0 || l.r.s.stopped.Load() {
		return
	}
	now := time.Now()
	if l.deadline.Sub(now) > limit-limit/8 {
		return
	}
	// While the engine is silent the deadline may pass without harm: it is moved
	// on before the next write, and a deadline in the past only fails writes.
	l.deadline = now.Add(limit)
	_ = l.r.ctx.Conn().SetWriteDeadline(l.deadline)
}

// Close is called once by the server, after the last byte or when the client
// would not take more.
func (l *relay) Close() error {
	r := l.r
	if r == nil {
		return nil
	}
	_ = r.ctx.Conn().SetWriteDeadline(time.Time{})
	if complete := l.end == io.EOF && !l.told; !complete {
		if r.conn != nil {
			r.conn.disarm() // nobody else stops it from here on
		}
		if r.end == endNone {
			r.end = endClientClosed
			if !r.x.Canceled() && !r.aborts.busy() {
				r.stop()
			}
		}
		r.aborts.wait() // an engine that must be asked first is asked before the close
	}
	r.x.Close()
	r.usage = r.sniff.Usage()
	r.learnResponse(r.sniff.ResponseID())
	r.release(ring.Outcome{PromptTokens: r.usage.Prompt, CachedTokens: r.usage.Cached, OutputTokens: r.usage.Output, Prefilled: r.sniff.Committed()})
	if failure, failed := r.sniff.Failure(); failed && r.end == endNone {
		r.end = endUpstreamError
		if failure.Status < 500 && failure.Status != 429 {
			r.end = endClientError
		}
	}
	if r.end == endNone {
		r.end = endOK
		if r.status >= 500 {
			r.end = endUpstreamError
		} else if r.status >= 400 {
			r.end = endClientError
		}
	}
	r.finish(r.end, r.status)
	r.s.recycle(r)
	return nil
}
