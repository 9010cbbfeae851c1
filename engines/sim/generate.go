package sim

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// job is a generation request given to the engine.
type job struct {
	*exchange
	reply  *reply
	runs   []*Running
	state  []Progress
	shown  []int // tokens written so far, per run
	signal chan struct{}
}

var errBroken = errors.New("cut by a fault")

// generate answers on one of the four generation paths.
func (x *exchange) generate(f family) {
	s := x.s
	buf, _ := s.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	c, err := parseCall(f, x.body, *buf, s.opt.Mode == VLLM, s.stored.get)
	if err != nil {
		x.refuse(f, badBody(s.opt.Mode, f, err))
		return
	}
	if c.model == "" {
		c.model = s.opt.Models[0]
	}
	x.note(func(e *Entry) { e.Stream = c.stream })
	if p := x.checkModel(c); p != nil {
		x.refuse(f, p)
		return
	}
	j, p := x.prepare(f, c)
	if f == responses && j != nil && p == nil {
		s.stored.put(j.reply.id, c.inputs[0].rendered[c.head:], j.reply.answers[0])
	}
	if f != completions && cap(c.inputs[0].rendered) <= 4<<20 {
		*buf = c.inputs[0].rendered
		s.buffers.Put(buf)
	}
	if j == nil {
		x.refuse(f, p)
		return
	}
	switch {
	case p != nil:
		j.streamProblem(p)
	case c.stream:
		j.stream()
	default:
		j.whole()
	}
}

func (x *exchange) checkModel(c *call) *problem {
	models := x.s.opt.Models
	if x.s.opt.Mode == SGLang || slices.Contains(models, c.model) {
		return nil // SGLang answers for any name
	}
	return &problem{status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		text: "The model `" + c.model + "` does not exist. Valid aliases: " + strings.Join(models, ", ") + "."}
}

// prepare hashes the prompts and submits them. Without a job the problem is the answer; with both, it
// belongs inside the stream, as SGLang does it.
func (x *exchange) prepare(f family, c *call) (*job, *problem) {
	s, opt := x.s, &x.s.opt
	now := time.Now()
	rep := &reply{mode: opt.Mode, family: f, call: c, begun: now.Unix(), block: opt.BlockTokens, hide: opt.HideCached}
	x.name(rep)
	j := &job{exchange: x, reply: rep, signal: make(chan struct{}, 1)}
	model := c.model
	if opt.Mode == SGLang {
		model = opt.Models[0]
	}
	root := Root(model, c.salt)
	var requests []Request
	if opt.TokenizeBody != nil {
		if ids := opt.TokenizeBody(x.r.URL.Path, x.body); ids != nil {
			c.inputs = []input{{ids: ids, rendered: c.inputs[0].rendered}}
		}
	}
	for n, in := range c.inputs {
		var p Prompt
		switch {
		case in.ids != nil:
			p = HashTokens(root, opt.BlockTokens, in.ids)
		case opt.Tokenizer != nil:
			p = HashTokens(root, opt.BlockTokens, opt.Tokenizer(in.rendered))
		default:
			p = HashRendered(root, opt.BlockTokens, in.rendered)
		}
		a := makeAnswer(c, chain(p.End, uint64(p.Tokens)), opt.AnswerTokens, opt.Tokenizer)
		if x.fault != nil && x.fault.Kind == FaultBigEvent {
			a.big = x.fault.Bytes
		}
		rep.answers = append(rep.answers, a)
		rep.prompt += p.Tokens
		id := rep.id
		if c.rid != "" {
			id = c.rid
		}
		requests = append(requests, Request{ID: id + "#" + hexID(uint64(x.entry.Seq)) + "-" + string(num(nil, n)),
			Prompt: p, Output: a.ids, MaxTokens: a.tokens})
	}
	x.note(func(e *Entry) { e.ID, e.PromptTokens = rep.id, rep.prompt })

	hidden := opt.Mode == SGLang && c.stream && (f == messages || f == responses) // errors come inside these streams
	for _, r := range requests {
		var p *problem
		switch {
		case c.maxTokens > opt.MaxModelLen:
			p = tooMuch(opt.Mode, c.maxTokens, opt.MaxModelLen)
		case r.Prompt.Tokens >= opt.MaxModelLen || opt.Mode == SGLang && r.Prompt.Tokens+c.maxTokens > opt.MaxModelLen:
			p = tooLong(opt.Mode, f, r.Prompt.Tokens, opt.MaxModelLen) // vLLM cuts an answer to what fits
		case r.Prompt.Tokens == 0:
			p = badBody(opt.Mode, f, errNoPrompt)
		}
		if p == nil {
			continue
		}
		if hidden {
			p.kind = "invalid_request_error"
			return j, p
		}
		return nil, p
	}
	for _, r := range requests {
		run, err := s.engine.Submit(r, j.signal)
		if err != nil {
			j.abort()
			return x.submitProblem(j, err)
		}
		j.runs = append(j.runs, run)
	}
	j.state = make([]Progress, len(j.runs))
	j.shown = make([]int, len(j.runs))
	return j, nil
}

func (x *exchange) submitProblem(j *job, err error) (*job, *problem) {
	p := &problem{status: http.StatusBadRequest, kind: "BadRequestError", text: err.Error()}
	if !errors.Is(err, ErrQueueFull) {
		return nil, p
	}
	p.status, p.kind, p.text = http.StatusServiceUnavailable, "503", "The request queue is full."
	if j.reply.family == messages {
		p.kind = "overloaded_error"
	}
	if !j.reply.call.stream {
		return nil, p
	}
	if j.reply.family != messages {
		p.kind = "SERVICE_UNAVAILABLE"
	}
	return j, p
}

// name chooses the ids of an answer.
func (x *exchange) name(rep *reply) {
	n := x.s.ids.Add(1)
	short := hexID(chain(uint64(x.s.begun.Load()), n))
	long := short + hexID(chain(1, n))
	if rep.sglang() {
		rep.id = [...]string{"", "", "msg_", "resp_"}[rep.family] + long
		rep.item = "msg_" + hexID(chain(2, n)) + hexID(chain(3, n))
		if rep.call.rid != "" && rep.family <= completions {
			rep.id = rep.call.rid
		}
		return
	}
	if own := x.r.Header.Get("X-Request-Id"); own != "" {
		short = own
	}
	rep.id = [...]string{"chatcmpl-", "cmpl-", "chatcmpl-", "resp_"}[rep.family] + short
	rep.item = "msg_" + hexID(chain(2, n))
}

// poll reads the progress of all runs.
func (j *job) poll() (over bool) {
	over = true
	rep := j.reply
	rep.cached, rep.output = 0, 0
	for n, run := range j.runs {
		j.state[n] = run.Progress()
		rep.cached += j.state[n].Cached
		rep.output += j.state[n].Tokens
		over = over && j.state[n].Over()
	}
	x := j.exchange
	x.note(func(e *Entry) {
		e.OutputTokens = rep.output
		if j.state[0].Admitted {
			e.CachedTokens = rep.cached
		}
		if e.FirstToken.IsZero() && rep.output > 0 {
			e.FirstToken = time.Now()
		}
	})
	return over
}

// wait blocks until the engine made progress or the client left (false, after its abort is done).
func (j *job) wait(poll time.Duration) bool {
	select {
	case <-j.signal:
		return true
	case <-j.r.Context().Done():
		j.leave(poll)
		return false
	}
}

// leave notices the client's close, at the engine's next look for it, and sees the abort through.
func (j *job) leave(poll time.Duration) {
	s := j.s
	if s.base.Err() != nil {
		return // the server closes
	}
	j.note(func(e *Entry) { e.Left = time.Now() })
	if poll = s.engine.Real(poll); poll > 0 {
		since := time.Since(j.entry.Time)
		next := since.Truncate(poll) + poll
		j.settle(next - since)
	}
	j.abort()
	j.settle(-1)
	j.poll()
	j.note(func(e *Entry) { e.Aborted, e.Outcome = time.Now(), Gone })
}

// settle waits until all runs are over, for a time at most (negative: no limit).
func (j *job) settle(most time.Duration) {
	ctx := j.s.base
	if most >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	for !j.poll() {
		select {
		case <-j.signal:
		case <-ctx.Done():
			return
		}
	}
}

func (j *job) abort() {
	for _, run := range j.runs {
		run.Abort()
	}
}

// abandon ends the runs of a request that a fault cut.
func (j *job) abandon() {
	j.abort()
	j.settle(-1)
	j.note(func(e *Entry) {
		if e.Outcome == Open || e.Outcome == Answered { // the last bytes could not be written
			e.Outcome = Broken
		}
		e.Aborted = time.Now()
	})
}

// aborted adapts the answer to an abort from outside (/abort_request, a restart).
func (j *job) aborted() bool {
	for n := range j.state {
		if j.state[n].Aborted {
			j.reply.answers[n].reason = "abort"
			j.reply.answers[n].tokens = j.state[n].Tokens
			j.reply.prompt, j.reply.cached = 0, 0
			return true
		}
	}
	return false
}

// whole answers a request that does not stream.
func (j *job) whole() {
	poll := j.s.opt.AbortPoll
	for !j.poll() {
		if !j.wait(poll) {
			return
		}
	}
	if o := j.fault; o != nil {
		switch o.Kind {
		case FaultStall:
			if !j.hold(o.Delay) {
				return
			}
		case FaultErrorEvent:
			j.refuse(j.reply.family, &problem{status: o.Status, kind: kindOf(j.reply.mode, j.reply.family, o.Status), text: o.Message})
			return
		}
	}
	if j.aborted() {
		j.note(func(e *Entry) { e.Outcome, e.Aborted = Gone, time.Now() })
	}
	j.json(http.StatusOK, j.reply.whole(nil))
}
