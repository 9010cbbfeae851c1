package sim

import (
	"bytes"
	"net/http"
	"time"
)

// headers begins a stream.
func (j *job) headers() {
	h := j.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	if j.reply.sglang() && j.reply.family == responses {
		h.Set("Cache-Control", "no-cache")
	}
	j.w.WriteHeader(http.StatusOK)
	j.note(func(e *Entry) { e.Status = http.StatusOK })
}

// late says that headers come with the first token: SGLang awaits it on its OpenAI paths.
func (j *job) late() bool { return j.reply.sglang() && j.reply.family <= completions }

// stream answers with events, each flushed with what the same step made.
func (j *job) stream() {
	rep := j.reply
	begun := false
	begin := func() bool {
		begun = true
		j.headers()
		return j.emit(rep.begin(nil), nil) == nil
	}
	if !j.late() && !begin() {
		j.abandon()
		return
	}
	var b []byte
	for {
		poll := j.s.opt.AbortPoll
		if rep.opened || rep.family == completions && rep.output > 0 {
			poll = j.s.opt.StreamAbortPoll
		}
		if !j.wait(poll) {
			return
		}
		over := j.poll()
		b = b[:0]
		for n := range j.state {
			st := &j.state[n]
			if st.Aborted {
				continue
			}
			for ; j.shown[n] < st.Tokens; j.shown[n]++ { // an event per token, also if steps were missed
				to := j.shown[n] + 1
				b = rep.first(b)
				b = rep.delta(b, n, j.shown[n], to, st.Finished && to == st.Tokens)
			}
		}
		gone := over && j.aborted()
		if gone && (rep.family != responses || rep.hasItem()) {
			b = rep.first(b)
			for n := range j.state {
				if j.state[n].Aborted {
					b = rep.delta(b, n, j.shown[n], j.state[n].Tokens, true)
				}
			}
		}
		if over {
			b = rep.end(b)
		}
		if len(b) == 0 {
			continue
		}
		var ended func(e *Entry)
		if over {
			ended = func(e *Entry) {
				e.Outcome = Answered
				if gone {
					e.Outcome, e.Aborted = Gone, time.Now()
				}
			}
		}
		if over && j.fault == nil { // the headers may be the first that the client sees of it
			j.finish(ended)
		}
		if !begun && !begin() || j.emit(b, ended) != nil {
			j.abandon()
			return
		}
		if over {
			return
		}
	}
}

// streamProblem is a refusal inside a stream.
func (j *job) streamProblem(p *problem) {
	j.headers()
	j.emit(j.reply.fail(j.reply.begin(nil), p), func(e *Entry) { e.Outcome = Refused })
}

// emit writes whole events and flushes them; a fault that is due strikes between two of them. With ended they are the
// stream's last, and how it ended is noted before the very last is written.
func (j *job) emit(frames []byte, ended func(e *Entry)) error {
	defer func() {
		if !j.dead {
			j.ctl.Flush()
		}
	}()
	for len(frames) > 0 {
		if o := j.fault; o != nil && j.sent == o.After {
			if err := j.strike(o); err != nil {
				return err
			}
		}
		end := bytes.Index(frames, []byte("\n\n")) + 2
		if j.fault == nil {
			end = len(frames)
		}
		if ended != nil && end == len(frames) {
			j.finish(ended)
		}
		if _, err := j.w.Write(frames[:end]); err != nil {
			return err
		}
		frames = frames[end:]
		j.sent++
	}
	return nil
}

// strike lets a fault act in the middle of a stream.
func (j *job) strike(o *Fault) error {
	j.ctl.Flush()
	switch o.Kind {
	case FaultReset:
		j.reset()
		return errBroken
	case FaultTruncate:
		j.note(func(e *Entry) { e.Outcome = Broken })
		return errBroken
	case FaultErrorEvent:
		j.note(func(e *Entry) { e.Outcome = Broken })
		j.w.Write(j.reply.fail(nil, &problem{status: o.Status, kind: kindOf(j.reply.mode, j.reply.family, o.Status), text: o.Message}))
		return errBroken
	case FaultStall:
		if !j.hold(o.Delay) {
			return errBroken
		}
	}
	return nil
}
