// Package lanesim runs lanes in front of a simulated engine on a virtual clock: the proxy's part (send, abort, send again)
// is played by a driver, the engine's by a sim.Core, and between them lies the time of a network hop, so that what one side
// decides crosses what the other did. It is deterministic. Its use is tests, benchmarks and replays.
package lanesim

import (
	"fmt"
	"strconv"
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

// leg is a request's present copy at the engine.
type leg struct {
	live  bool // the engine may have it
	token bool // the engine made its first token
	dead  bool // an abort has reached the engine
	gone  bool // the client left
	sent  int64
	alone bool
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
		id, _ := strconv.ParseUint(e.ID, 10, 64)
		d.engineSide(id, e)
		d.line.At(now+int64(opt.Hop), func(now int64) { d.heard(now, id, e) })
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
		d.send(now, id)
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
			d.send(now, a.ID)
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

func (d *driver) send(now int64, id uint64) {
	l, res := &d.legs[id], &d.res[id]
	if l.live {
		d.fail("request %d is sent while a copy of it lives", id)
		return
	}
	alone := d.station.Core.Live() == 0
	*l = leg{live: true, sent: now, alone: alone}
	if res.Sends == 0 {
		res.FirstSent = time.Duration(now)
	}
	res.Sends++
	d.line.At(now+int64(d.opt.Hop), func(now int64) {
		r := &d.reqs[id]
		err := d.station.Submit(sim.Request{ID: strconv.FormatUint(id, 10), Prompt: r.Prompt, MaxTokens: r.Output})
		if err != nil {
			d.fail("request %d: %v", id, err)
		}
	})
}

// abort reaches the engine a hop later; by then it may have answered, and then nothing is stopped.
func (d *driver) abort(now int64, id uint64) {
	d.line.At(now+int64(d.opt.Hop), func(now int64) {
		l := &d.legs[id]
		if l.live && (!l.token || l.gone) {
			l.dead = true
			d.station.Abort(strconv.FormatUint(id, 10))
		}
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
		d.res[id].Preempted = s.Preempted
		d.res[id].Extra = time.Duration(s.ExtraSeconds * 1e9)
	}
}

func (d *driver) end(now int64, id uint64, o Outcome) {
	if d.res[id].Outcome != Unfinished {
		d.fail("request %d ended twice: %v, then %v", id, d.res[id].Outcome, o)
	}
	d.res[id].Outcome, d.res[id].End = o, time.Duration(now)
}

// engineSide notes what is true at the engine at once.
func (d *driver) engineSide(id uint64, e sim.Event) {
	l := &d.legs[id]
	if e.Kind == sim.FirstToken {
		l.token = true
	}
}

// heard is an event's arrival at the proxy.
func (d *driver) heard(now int64, id uint64, e sim.Event) {
	l, r, res := &d.legs[id], &d.reqs[id], &d.res[id]
	switch e.Kind {
	case sim.FirstToken:
		if l.dead || l.gone || r.Unstreamed {
			return
		}
		d.watch(now, "first token", id)
		res.FirstToken = time.Duration(now)
		if l.alone && r.Fresh >= 2048 && res.Sends == 1 {
			d.learn(float64(r.Fresh) / (float64(now-l.sent) / 1e9))
		}
		d.ctl.FirstToken(now, id)
	case sim.Finished:
		l.live = false
		if l.gone {
			return
		}
		if l.dead {
			// The abort came too late to stop it, and after the answer was cut off from the client.
			d.back(now, id)
			return
		}
		if res.FirstToken == 0 {
			res.FirstToken = time.Duration(now)
		}
		d.watch(now, "finished", id)
		d.status(now, id)
		d.ctl.Leave(now, id)
		d.end(now, id, Finished)
	case sim.Aborted:
		l.live = false
		if l.gone {
			return
		}
		d.back(now, id)
	default:
		return
	}
	d.act(now)
}

func (d *driver) back(now int64, id uint64) {
	d.watch(now, "preempted", id)
	d.ctl.Preempted(now, id, -1)
	d.act(now)
}

func (d *driver) learn(sample float64) {
	d.samples++
	d.rate += (sample - d.rate) * max(1/float64(d.samples), 0.2)
	d.facts()
}
