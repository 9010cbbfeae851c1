package engines

import (
	"errors"
	"fmt"
	"reflect"
)

// roster is the list of engines at one moment. It does not change.
type roster struct {
	engines []*Engine // in the order of the configuration
	byName  map[string]*Engine
}

// Plan is another list of engines, checked and ready to take the place of the present one.
type Plan struct {
	fleet  *Fleet
	opt    FleetOptions
	roster *roster
}

// Plan checks a new list of engines and new ProbeInterval, ProbeTimeout, ConnectTimeout and Aliases; the other options stay as they are. Nothing changes before Apply. An engine that keeps its
// name and address keeps all that is known of it, its operator's drain included; under another address it is another engine. One plan at a time: it goes by the list that it found.
func (f *Fleet) Plan(specs []Spec, opt FleetOptions) (*Plan, error) {
	if len(specs) == 0 {
		return nil, errors.New("a fleet needs at least one engine")
	}
	p := &Plan{fleet: f, opt: *f.options(), roster: &roster{byName: make(map[string]*Engine, len(specs))}}
	p.opt.ProbeInterval, p.opt.ProbeTimeout, p.opt.ConnectTimeout, p.opt.Aliases = opt.ProbeInterval, opt.ProbeTimeout, opt.ConnectTimeout, opt.Aliases
	p.opt.setDefaults()
	for _, spec := range specs {
		e, err := p.engine(spec)
		if err != nil {
			return nil, err
		}
		if p.roster.byName[e.Name] != nil {
			return nil, fmt.Errorf("engine %q: the name is taken; the ring is built from names, so each needs its own", e.Name)
		}
		p.roster.engines = append(p.roster.engines, e)
		p.roster.byName[e.Name] = e
	}
	return p, nil
}

// engine is the one of a spec: the present one if it says nothing new.
func (p *Plan) engine(spec Spec) (*Engine, error) {
	spec, target, err := spec.complete()
	if err != nil {
		return nil, err
	}
	secure, err := tlsConfig(&spec, &target)
	if err != nil {
		return nil, err
	}
	f := p.fleet
	e := &Engine{Spec: spec, Target: target, tls: secure}
	was := f.ByName(spec.Name)
	switch {
	case was == nil || was.Target != target:
		e.record = &record{
			fleet: f, wake: make(chan struct{}, 1), firstProbe: make(chan struct{}), modelsRead: make(chan struct{}),
			facts: Facts{Running: -1, Waiting: -1, KVUsage: -1}, work: -1,
			health: health{base: Starting, reason: "not probed yet", since: f.now()},
		}
		e.latest.Store(e)
	case reflect.DeepEqual(was.Spec, spec) && sameRoots(was, e):
		return was, nil
	default:
		e.record = was.record
	}
	return e, nil
}

// sameRoots tells whether two descriptions trust the same authorities: a file of them may have other content under the same name.
func sameRoots(a, b *Engine) bool {
	return a.tls == nil || b.tls == nil || a.tls.RootCAs == nil || b.tls.RootCAs == nil || a.tls.RootCAs.Equal(b.tls.RootCAs)
}

// Engines is the new list in the order of the configuration; not to be changed.
func (p *Plan) Engines() []*Engine { return p.roster.engines }

// SameAs tells whether two descriptions are of one engine: what is known of it is the same.
func (e *Engine) SameAs(other *Engine) bool { return e.record == other.record }

// Apply puts the plan in force. New engines are Starting and are probed at once; those that are gone are not probed any more, and nobody is told of them; requests may still use them.
func (p *Plan) Apply() {
	f := p.fleet
	f.probing.Lock()
	defer f.probing.Unlock()
	old := f.roster.Load()
	f.opt.Store(&p.opt)
	f.roster.Store(p.roster)
	for _, was := range old.engines {
		if e := p.roster.byName[was.Name]; e == nil || !e.SameAs(was) {
			was.remove()
		}
	}
	for _, e := range p.roster.engines {
		was := old.byName[e.Name]
		switch {
		case was == nil:
			f.probe(e)
		case !e.SameAs(was):
			e.inherit(was)
			f.probe(e)
		case e != was:
			e.describe()
		default:
			e.nudge() // its next probe may be due earlier now
		}
	}
	f.rebuildCatalog()
}

// remove ends the probing of an engine. With probing held.
func (e *Engine) remove() {
	e.removed.Store(true)
	if e.stop != nil {
		e.stop()
	}
}

// inherit keeps the operator's word about a name whose address has changed.
func (e *Engine) inherit(was *Engine) {
	was.mu.Lock()
	drained := was.health.drained
	was.mu.Unlock()
	e.mu.Lock()
	e.health.drained = drained
	e.mu.Unlock()
}

// describe puts a new description in force. What it excludes is out at once; what else it means is found out by asking soon.
func (e *Engine) describe() {
	e.mu.Lock()
	e.latest.Store(e)
	if len(e.Spec.Models) > 0 && e.facts.ModelsKnown {
		e.facts.Models = restrict(e.facts.Models, e.Spec.Models)
	}
	e.mu.Unlock()
	e.wantModels.Store(true)
	e.LookSoon()
}
