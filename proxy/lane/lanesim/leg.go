package lanesim

import (
	"strconv"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// leg is a request's present copy at the engine.
type leg struct {
	name      string // at the engine
	live      bool   // the engine may have it
	submitted bool   // it is through the engine's front end
	token     bool   // the engine made its first token
	dead      bool   // an abort has reached the engine
	gone      bool   // the client left
	slice     bool   // it is not the request itself
	cut       int    // tokens of the latest slice
	found     int    // tokens cached
	sent      int64
	alone     bool
}

// send sends the request itself, or with cut > 0 a slice of it.
func (d *driver) send(now int64, id uint64, cut int) {
	l, res, r := &d.legs[id], &d.res[id], &d.reqs[id]
	if l.live {
		d.fail("request %d is sent while a copy of it lives", id)
		return
	}
	if cut > 0 && (cut <= l.cut || cut >= r.Prompt.Tokens) {
		d.fail("request %d of %d tokens is sent as a slice of %d after one of %d", id, r.Prompt.Tokens, cut, l.cut)
		return
	}
	if res.Sends == 0 {
		res.FirstSent = time.Duration(now)
	}
	res.Sends++
	*l = leg{name: strconv.FormatUint(id<<16|uint64(res.Sends), 10), live: true, sent: now, alone: d.station.Core.Live() == 0, cut: max(cut, l.cut), slice: cut > 0}
	run := sim.Request{ID: l.name, Prompt: r.Prompt, MaxTokens: r.Output}
	if l.slice {
		run.Prompt, run.MaxTokens = d.prefix(r.Prompt, cut, uint64(res.Sends)), 1
	}
	front := d.opt.Front + time.Duration(run.Prompt.Tokens)*d.opt.FrontToken
	d.line.At(now+int64(d.opt.Hop+front), func(now int64) {
		if l.name == run.ID && l.dead { // stopped before its first step
			l.live = false
			d.after(now, run.ID, sim.Event{Kind: sim.Aborted, ID: run.ID})
			return
		}
		if l.name == run.ID {
			l.submitted = true
		} else {
			return // closed meanwhile, and sent again
		}
		if err := d.station.Submit(run); err != nil {
			d.fail("request %d: %v", id, err)
		}
	})
}

// prefix is the beginning of a prompt; of an engine that forgets, one that nobody has seen.
func (d *driver) prefix(p sim.Prompt, tokens int, run uint64) sim.Prompt {
	block := d.station.Core.Options().BlockTokens
	n := tokens / block
	b := p.Blocks[:n:n]
	if d.opt.Forgets {
		b = blocks(run<<40^p.End, nil, n)
	}
	return sim.BlockPrompt(block, b, tokens%block)
}

// abort reaches the engine a hop later; by then it may have answered, and then nothing is stopped.
func (d *driver) abort(now int64, id uint64) {
	l, name := &d.legs[id], d.legs[id].name
	d.line.At(now+int64(d.opt.Hop), func(now int64) {
		if !l.live || l.name != name || l.token && !l.gone {
			return
		}
		l.dead = true
		if l.submitted {
			d.station.Abort(name)
		}
		if d.opt.Unseen && !l.gone {
			l.live = false
			d.back(now, id)
		}
	})
}

// after has the proxy hear of an engine's event a hop later, unless the connection is closed by then.
func (d *driver) after(now int64, name string, e sim.Event) {
	n, _ := strconv.ParseUint(name, 10, 64)
	id := n >> 16
	if l := &d.legs[id]; l.name == name {
		switch e.Kind {
		case sim.FirstToken:
			l.token = true
		case sim.Admitted:
			l.found = e.Cached
		}
	}
	d.line.At(now+int64(d.opt.Hop), func(now int64) {
		if l := &d.legs[id]; l.name == name && !(d.opt.Unseen && l.dead) {
			d.heard(now, id, e)
		}
	})
}

// heard is an event's arrival at the proxy.
func (d *driver) heard(now int64, id uint64, e sim.Event) {
	l, r, res := &d.legs[id], &d.reqs[id], &d.res[id]
	switch e.Kind {
	case sim.FirstToken:
		if l.dead || l.gone || l.slice || r.Unstreamed {
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
		switch {
		case l.gone:
			return
		case l.slice:
			d.sliced(now, id)
			return
		case l.dead:
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
		return
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

func (d *driver) sliced(now int64, id uint64) {
	l := &d.legs[id]
	d.watch(now, "sliced", id)
	s := lane.Slice{Prompt: l.cut, Cached: l.found}
	if d.opt.NoUsage {
		s.Cached = -1
	}
	d.ctl.Sliced(now, id, s)
	d.act(now)
}
