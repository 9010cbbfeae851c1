package engines

import (
	"context"
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

func (o *FleetOptions) setDefaults() {
	if o.ProbeInterval <= 0 {
		o.ProbeInterval = 2 * time.Second
	}
	if o.ProbeTimeout <= 0 {
		o.ProbeTimeout = 3 * time.Second
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Fleet is the list of engines and what is known of each. A Plan changes the list.
type Fleet struct {
	opt     atomic.Pointer[FleetOptions]
	roster  atomic.Pointer[roster]
	catalog atomic.Pointer[catalog]

	probing struct {
		sync.Mutex
		ctx  context.Context // of Run; nil before
		work sync.WaitGroup
	}

	changes struct {
		sync.Mutex
		queue   []*record // engines with pending changes, each once: bounded by the fleet
		calling bool      // somebody is working the queue off
	}
}

// NewFleet checks specs and makes a fleet whose engines are all Starting. Nothing is sent before Run.
func NewFleet(specs []Spec, opt FleetOptions) (*Fleet, error) {
	opt.setDefaults()
	f := &Fleet{}
	f.opt.Store(&opt)
	f.roster.Store(&roster{})
	plan, err := f.Plan(specs, opt)
	if err != nil {
		return nil, err
	}
	plan.Apply()
	return f, nil
}

// Run probes until ctx ends, and returns when every goroutine it started is gone. To be called once.
func (f *Fleet) Run(ctx context.Context) {
	p := &f.probing
	p.Lock()
	if p.ctx != nil {
		panic("engines: Fleet.Run called twice")
	}
	p.ctx = ctx
	for _, e := range f.Engines() {
		f.probe(e)
	}
	p.Unlock()
	<-ctx.Done()
	p.Lock() // whoever adds engines has added them, and sees from now on that it is over
	p.Unlock()
	p.work.Wait()
}

// probe starts the probing of an engine unless that is over or has not begun. With probing held.
func (f *Fleet) probe(e *Engine) {
	p := &f.probing
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(p.ctx)
	e.stop = stop
	p.work.Go(func() { newProber(e).run(ctx) })
}

// Settled waits until each engine has been probed once, whatever the outcome, and OnChange has been told, or ctx ends.
func (f *Fleet) Settled(ctx context.Context) error {
	for _, e := range f.Engines() {
		select {
		case <-e.firstProbe:
		case <-ctx.Done():
			return fmt.Errorf("engine %q has not been probed: %w", e.Name, ctx.Err())
		}
	}
	return nil
}

// Engines is the whole list as it is now, in the order of the configuration; not to be changed.
func (f *Fleet) Engines() []*Engine { return f.roster.Load().engines }

// ByName is the engine of a name, or nil.
func (f *Fleet) ByName(name string) *Engine { return f.roster.Load().byName[name] }

// Status is a snapshot of all engines, for people.
func (f *Fleet) Status() []Status {
	out := make([]Status, len(f.Engines()))
	for i, e := range f.Engines() {
		out[i] = e.Status()
	}
	return out
}

// Drain takes an engine out for new sessions; running requests and bound sessions go on. Unknown names are an error.
func (f *Fleet) Drain(name string) error { return f.setDrained(name, true) }

// Undrain puts it back.
func (f *Fleet) Undrain(name string) error { return f.setDrained(name, false) }

func (f *Fleet) setDrained(name string, drained bool) error {
	e := f.ByName(name)
	if e == nil {
		return fmt.Errorf("there is no engine %q", name)
	}
	now := f.now()
	e.mu.Lock()
	e.health.drained = drained
	change := e.settle(now)
	e.mu.Unlock()
	f.options().Logger.Info("engine drain changed by the operator", "engine", name, "drained", drained)
	f.notify(e, change)
	return nil
}

func (f *Fleet) options() *FleetOptions { return f.opt.Load() }

func (f *Fleet) now() time.Time { return f.options().Now() }

// notify announces a change. Whoever finds nobody calling becomes the caller and works off what others add meanwhile: calls are in order and one at a time, yet need no goroutine and no lock.
func (f *Fleet) notify(e *Engine, change Change) {
	if change == 0 || e.removed.Load() {
		return
	}
	if change&ModelsChanged != 0 {
		f.rebuildCatalog()
	}
	if change&(StateChanged|Restarted) != 0 {
		f.log(e, change)
	}
	if f.options().OnChange == nil {
		return
	}
	c := &f.changes
	c.Lock()
	if e.pending == 0 {
		c.queue = append(c.queue, e.record)
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
		if !next.removed.Load() {
			f.options().OnChange(next.latest.Load(), what)
		}
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
	f.options().Logger.LogAttrs(context.Background(), level, "engine changed", attributes...)
}
