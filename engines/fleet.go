package engines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// FleetOptions are the knobs of a fleet; the zero value works.
type FleetOptions struct {
	ProbeInterval  time.Duration     // between two health probes of an engine, ±15 %; 0 = 2 s. Facts are asked five times less often; an engine that is not Ready at least once a second
	ProbeTimeout   time.Duration     // of one probe; 0 = 3 s, since SGLang's own health takes 1 s
	ConnectTimeout time.Duration     // of Engine.Dial and of probes; 0 = 2 s
	Logger         *slog.Logger      // one line per change of state; nil = none
	Aliases        map[string]string // extra names in the list of models → the model they stand for

	// OnChange is told each change after it happened, never two calls at a time and never with a lock held; what changed meanwhile is one call. It runs on the goroutine that found the change,
	// a request's among them, so it must not block. nil = nobody.
	OnChange func(e *Engine, what Change)

	// Turn is how many other proxies come before this one in reading an engine's models and metrics; 0 = it is this one's to read. One with
	// others before it reads only what none of them has told of (Engine.Heard) for that many readings more. It must not block. nil = alone.
	Turn func(engine string) int

	// OnRead is called after an engine's pages were read: Engine.Digest is new. It runs on the goroutine that probes that engine and must
	// not block. nil = nobody.
	OnRead func(e *Engine)

	Now func() time.Time // nil = time.Now
}

// Fleet is the list of engines. It is fixed; what changes is what is known of each.
type Fleet struct {
	opt     FleetOptions
	engines []*Engine
	byName  map[string]*Engine
	catalog atomic.Pointer[catalog]
	ran     atomic.Bool

	changes struct {
		sync.Mutex
		queue   []*Engine // engines with pending changes, each once: bounded by the fleet
		calling bool      // somebody is working the queue off
	}
}

// NewFleet checks specs and makes a fleet whose engines are all Starting. Nothing is sent before Run.
func NewFleet(specs []Spec, opt FleetOptions) (*Fleet, error) {
	if len(specs) == 0 {
		return nil, errors.New("a fleet needs at least one engine")
	}
	if opt.ProbeInterval <= 0 {
		opt.ProbeInterval = 2 * time.Second
	}
	if opt.ProbeTimeout <= 0 {
		opt.ProbeTimeout = 3 * time.Second
	}
	if opt.ConnectTimeout <= 0 {
		opt.ConnectTimeout = 2 * time.Second
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{opt: opt, byName: make(map[string]*Engine, len(specs))}
	for _, spec := range specs {
		spec, target, err := spec.complete()
		if err != nil {
			return nil, err
		}
		if f.byName[spec.Name] != nil {
			return nil, fmt.Errorf("engine %q: the name is taken; the ring is built from names, so each needs its own", spec.Name)
		}
		secure, err := tlsConfig(&spec, &target)
		if err != nil {
			return nil, err
		}
		e := &Engine{
			Spec: spec, Target: target, fleet: f, tls: secure, wake: make(chan struct{}, 1), firstProbe: make(chan struct{}), modelsRead: make(chan struct{}),
			work:   -1,
			facts:  Facts{Running: -1, Waiting: -1, KVUsage: -1},
			health: health{base: Starting, reason: "not probed yet", since: opt.Now()},
		}
		f.engines = append(f.engines, e)
		f.byName[spec.Name] = e
	}
	f.rebuildCatalog()
	return f, nil
}

// Run probes until ctx ends, and returns when every goroutine it started is gone. To be called once.
func (f *Fleet) Run(ctx context.Context) {
	if f.ran.Swap(true) {
		panic("engines: Fleet.Run called twice")
	}
	var all sync.WaitGroup
	for _, e := range f.engines {
		all.Go(func() { newProber(e).run(ctx) })
	}
	all.Wait()
}

// Settled waits until each engine has been probed once, whatever the outcome, or ctx ends.
func (f *Fleet) Settled(ctx context.Context) error {
	for _, e := range f.engines {
		select {
		case <-e.firstProbe:
		case <-ctx.Done():
			return fmt.Errorf("engine %q has not been probed: %w", e.Name, ctx.Err())
		}
	}
	return nil
}

// Engines is the whole list in the order of the configuration; not to be changed.
func (f *Fleet) Engines() []*Engine { return f.engines }

// ByName is the engine of a name, or nil.
func (f *Fleet) ByName(name string) *Engine { return f.byName[name] }

// Status is a snapshot of all engines, for people.
func (f *Fleet) Status() []Status {
	out := make([]Status, len(f.engines))
	for i, e := range f.engines {
		out[i] = e.Status()
	}
	return out
}

// Drain takes an engine out for new sessions; running requests and bound sessions go on. Unknown names are an error.
func (f *Fleet) Drain(name string) error { return f.setDrained(name, true) }

// Undrain puts it back.
func (f *Fleet) Undrain(name string) error { return f.setDrained(name, false) }

func (f *Fleet) setDrained(name string, drained bool) error {
	e := f.byName[name]
	if e == nil {
		return fmt.Errorf("there is no engine %q", name)
	}
	now := f.now()
	e.mu.Lock()
	e.health.drained = drained
	change := e.settle(now)
	e.mu.Unlock()
	f.opt.Logger.Info("engine drain changed by the operator", "engine", name, "drained", drained)
	f.notify(e, change)
	return nil
}

func (f *Fleet) now() time.Time { return f.opt.Now() }

// notify announces a change. Whoever finds nobody calling becomes the caller and works off what others add meanwhile: calls are in order and one at a time, yet need no goroutine and no lock.
func (f *Fleet) notify(e *Engine, change Change) {
	if change == 0 {
		return
	}
	if change&ModelsChanged != 0 {
		f.rebuildCatalog()
	}
	if change&(StateChanged|Restarted) != 0 {
		f.log(e, change)
	}
	if f.opt.OnChange == nil {
		return
	}
	c := &f.changes
	c.Lock()
	if e.pending == 0 {
		c.queue = append(c.queue, e)
	}
	e.pending |= change
	if c.calling {
		c.Unlock()
		return
	}
	c.calling = true
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.queue = c.queue[1:]
		what := next.pending
		next.pending = 0
		c.Unlock()
		f.opt.OnChange(next, what)
		c.Lock()
	}
	c.queue, c.calling = nil, false
	c.Unlock()
}

func (f *Fleet) log(e *Engine, change Change) {
	state, reason := e.State(), e.Reason()
	level := slog.LevelInfo
	if state == Down || state == Unauthorized || state == Busy {
		level = slog.LevelWarn
	}
	attributes := []slog.Attr{slog.String("engine", e.Name), slog.String("state", state.String())}
	if reason != "" {
		attributes = append(attributes, slog.String("reason", reason))
	}
	if change&Restarted != 0 {
		attributes = append(attributes, slog.Bool("restarted", true))
	}
	if state == Busy && reason == "" { // full for a moment; failing requests have a reason
		level = slog.LevelDebug
	}
	f.opt.Logger.LogAttrs(context.Background(), level, "engine changed", attributes...)
}
