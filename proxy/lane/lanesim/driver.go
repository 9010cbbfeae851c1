// Package lanesim runs lanes in front of a simulated engine on a virtual clock: the proxy's part (send, abort, send again)
// is played by a driver, the engine's by a sim.Core, and between them lies the time of a network hop, so that what one side
// decides crosses what the other did. It is deterministic. Its use is tests, benchmarks and replays.
package lanesim

import (
	"fmt"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// Request is one request of a run.
type Request struct {
	At         time.Duration // arrival at the proxy
	Tenant     uint64
	Prompt     sim.Prompt
	Fresh      int           // what the proxy believes must be computed
	Output     int           // tokens of the answer
	Unstreamed bool          // its answer comes whole
	LeaveAfter time.Duration // the client gives up after so long; 0 = never
}

// Outcome is how a request ended.
type Outcome uint8

const (
	Unfinished Outcome = iota
	Finished
	Left
	Expired
	Refused
)

// String is the outcome in lower case.
func (o Outcome) String() string {
	return [...]string{"unfinished", "finished", "left", "expired", "refused"}[o]
}

// Result is what became of a request. Times are of the virtual clock.
type Result struct {
	Outcome    Outcome
	Class      lane.Class
	FirstSent  time.Duration
	FirstToken time.Duration // at the proxy
	End        time.Duration
	Sends      int
	Slices     int
	Preempted  int
	Extra      time.Duration
}

// Options describe a run.
type Options struct {
	Engine sim.Options
	Lanes  lane.Options
	// HoldOnly takes nothing back.
	HoldOnly bool
	Facts    lane.Facts    // beyond what the driver knows: rate (learned), CanPreempt, KeepsStep
	Hop      time.Duration // one way between proxy and engine. Default 300 µs.
	// Front is what the engine's front end takes for every request before its first step: HTTP, rendering, tokenizing.
	Front time.Duration
	// FrontToken is what it takes for each token of the prompt beyond that.
	FrontToken time.Duration
	// NoSlices is an engine, or a caller, that cannot cut prompts.
	NoSlices bool
	// NoUsage is an engine that does not tell what it found cached.
	NoUsage bool
	// Forgets is an engine that does not keep what slices compute.
	Forgets bool
	// Unseen is an engine of which only the closing of a connection is seen, and not when it stopped.
	Unseen bool
	// Watch is told of every call and action, if set.
	Watch func(now int64, what string, id uint64)
}

// Run is a finished run.
type Run struct {
	Results []Result
	View    lane.View
	Stats   sim.Stats
}

type driver struct {
	opt     Options
	line    sim.Timeline
	station *sim.Station
	ctl     *lane.Controller
	reqs    []Request
	res     []Result
	legs    []leg
	tickAt  int64
	rate    float64
	samples int
	actions []lane.Action
	err     error
}

// Play runs requests, which must be sorted by arrival, to their end, and returns an error if anything happened that must
// not: two live copies of a request, an abort after its first token, or requests that never end.
func Play(opt Options, reqs []Request) (*Run, error) {
	if opt.Hop <= 0 {
		opt.Hop = 300 * time.Microsecond
	}
	d := &driver{opt: opt, ctl: lane.New(opt.Lanes), reqs: reqs, res: make([]Result, len(reqs)), legs: make([]leg, len(reqs)), tickAt: -1}
	core := sim.NewCore(opt.Engine)
	d.station = d.line.Add(core, func(now int64, e sim.Event) {
		d.after(now, e.ID, e)
	})
	d.facts()
	for i := range reqs {
		id := uint64(i)
		d.line.At(int64(reqs[i].At), func(now int64) { d.arrive(now, id) })
		if reqs[i].LeaveAfter > 0 {
			d.line.At(int64(reqs[i].At+reqs[i].LeaveAfter), func(now int64) { d.leave(now, id) })
		}
	}
	d.line.Run(int64(100 * time.Hour))
	if d.err == nil {
		for i := range d.res {
			if d.res[i].Outcome == Unfinished {
				d.fail("request %d never ended", i)
				break
			}
		}
	}
	return &Run{Results: d.res, View: d.ctl.View(), Stats: core.Stats()}, d.err
}

func (d *driver) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("at %v: "+format, append([]any{time.Duration(d.line.Now())}, args...)...)
	}
}

func (d *driver) watch(now int64, what string, id uint64) {
	if d.opt.Watch != nil {
		d.opt.Watch(now, what, id)
	}
}

func (d *driver) facts() {
	f := d.opt.Facts
	f.CanPreempt = !d.opt.HoldOnly
	f.Slices = !d.opt.NoSlices
	f.UnseenAborts = d.opt.Unseen
	f.KeepsStep = d.opt.Engine.Mode == sim.VLLM
	f.FreezesDecodes = d.opt.Engine.Mode == sim.SGLang && !d.opt.Engine.MixedChunk
	if f.PrefillRate == 0 {
		f.PrefillRate = d.rate
	}
	d.ctl.SetFacts(f)
}

func (d *driver) arrive(now int64, id uint64) {
	r := &d.reqs[id]
	if d.res[id].Outcome != Unfinished {
		return
	}
	d.res[id].Class = lane.Interactive
	if r.Fresh >= d.ctl.Border() {
		d.res[id].Class = lane.Long
	}
	v := d.ctl.Arrive(now, lane.Arrival{ID: id, Tenant: r.Tenant, Fresh: r.Fresh, Context: r.Prompt.Tokens, Unstreamed: r.Unstreamed})
	d.watch(now, "arrive "+v.String(), id)
	switch v {
	case lane.Go:
		d.send(now, id, 0)
	case lane.Full:
		d.end(now, id, Refused)
	}
	d.act(now)
}

// act does what the controller wants, and arms its timer.
func (d *driver) act(now int64) {
	d.actions = d.ctl.Actions(d.actions[:0])
	for _, a := range d.actions {
		d.watch(now, a.Kind.String()+" "+a.Reason.String(), a.ID)
		switch a.Kind {
		case lane.Admit:
			d.send(now, a.ID, a.Tokens)
		case lane.Expire:
			d.end(now, a.ID, Expired)
		case lane.Preempt:
			if d.res[a.ID].FirstToken > 0 {
				d.fail("request %d is to be preempted after its first token", a.ID)
			}
			if !d.legs[a.ID].live {
				d.fail("request %d is to be preempted and was not sent", a.ID)
			}
			d.abort(now, a.ID)
		}
	}
	at, ok := d.ctl.Next()
	if !ok {
		d.tickAt = -1
		return
	}
	if at == d.tickAt {
		return
	}
	d.tickAt = at
	d.line.At(at, func(now int64) {
		if d.tickAt != at {
			return
		}
		d.tickAt = -1
		d.ctl.Tick(now)
		if next, ok := d.ctl.Next(); ok && next <= now {
			d.fail("the timer does not move on")
			return
		}
		d.act(now)
	})
}

func (d *driver) leave(now int64, id uint64) {
	if d.res[id].Outcome != Unfinished {
		return
	}
	d.watch(now, "leave", id)
	if d.legs[id].live {
		d.legs[id].gone = true
		d.abort(now, id)
	}
	d.status(now, id)
	d.ctl.Leave(now, id)
	d.end(now, id, Left)
	d.act(now)
}

func (d *driver) status(now int64, id uint64) {
	if s, ok := d.ctl.Status(now, id); ok {
		d.res[id].Preempted, d.res[id].Slices = s.Preempted, s.Slices
		d.res[id].Extra = time.Duration(s.ExtraSeconds * 1e9)
	}
}

func (d *driver) end(now int64, id uint64, o Outcome) {
	if d.res[id].Outcome != Unfinished {
		d.fail("request %d ended twice: %v, then %v", id, d.res[id].Outcome, o)
	}
	d.res[id].Outcome, d.res[id].End = o, time.Duration(now)
}

func (d *driver) learn(sample float64) {
	d.samples++
	d.rate += (sample - d.rate) * max(1/float64(d.samples), 0.2)
	d.facts()
}
