package sim

import (
	"sync"
	"time"
)

// Engine steps one Core on the real clock, Speed times as fast as its cost model says. One goroutine
// owns the stepping; Close ends it and waits for it. All methods may be called from anywhere.
type Engine struct {
	speed float64
	start time.Time
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex // guards all below
	core *Core
	live map[string]*Running
}

// Running is a request given to an Engine.
type Running struct {
	engine *Engine
	id     string
	signal chan<- struct{}
	state  Progress // guarded by engine.mu
}

// Progress is how far a request has come.
type Progress struct {
	Admitted bool
	Cached   int // prompt tokens found in the cache; meaningful once Admitted
	Tokens   int // produced so far
	Finished bool
	Aborted  bool
}

// Over says that nothing more will happen.
func (p Progress) Over() bool { return p.Finished || p.Aborted }

// NewEngine starts an engine. speed is simulated seconds per real second; 0 means 1.
func NewEngine(opt Options, speed float64) *Engine {
	if speed <= 0 {
		speed = 1
	}
	e := &Engine{
		speed: speed, start: time.Now(), core: NewCore(opt), live: map[string]*Running{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go e.run()
	return e
}

// Close stops stepping and waits; what runs never ends.
func (e *Engine) Close() {
	e.once.Do(func() { close(e.stop) })
	<-e.done
}

// Real turns a time of the simulated world into one of the real clock.
func (e *Engine) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / e.speed) }

// Submit gives the engine a request. signal (capacity 1 or more) gets a value whenever progress was
// made since the last one was taken.
func (e *Engine) Submit(r Request, signal chan<- struct{}) (*Running, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.core.Submit(r); err != nil {
		return nil, err
	}
	run := &Running{engine: e, id: r.ID, signal: signal}
	e.live[r.ID] = run
	e.nudge()
	return run, nil
}

// Progress reads how far the request is.
func (r *Running) Progress() Progress {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	return r.state
}

// Abort asks for the request's end, which Progress shows once it has taken effect.
func (r *Running) Abort() { r.engine.Abort(r.id) }

// Abort asks for a request's end by id.
func (e *Engine) Abort(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.core.Abort(id) {
		e.nudge()
	}
}

// AbortWhere asks for the end of all requests whose id the function accepts.
func (e *Engine) AbortWhere(match func(id string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.live {
		if match(id) && e.core.Abort(id) {
			e.nudge()
		}
	}
}

// ResetCache empties the prefix cache, if the mode allows it now.
func (e *Engine) ResetCache() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.ResetCache()
}

// Restart is what a killed and restarted process looks like: nothing runs, nothing is cached. Running
// requests end as aborted.
func (e *Engine) Restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core = NewCore(e.core.opt)
	for _, r := range e.live {
		r.state.Aborted = true
		r.tell()
	}
	clear(e.live)
	e.nudge()
}

// Options are the options in force.
func (e *Engine) Options() Options {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.opt
}

// Stats reads counters and levels.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.Stats()
}

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (r *Running) tell() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// now is the simulated time in ns.
func (e *Engine) now() int64 { return int64(float64(time.Since(e.start)) * e.speed) }

func (e *Engine) run() {
	defer close(e.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var clock int64 // end of the last step: stepping catches up when timers are late
	for {
		e.mu.Lock()
		d, busy := e.step(&clock)
		e.mu.Unlock()
		if !busy {
			select {
			case <-e.wake:
				clock = e.now()
				continue
			case <-e.stop:
				return
			}
		}
		if d > 0 {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-e.wake: // the core may be another one now
			case <-e.stop:
				return
			}
		} else {
			select {
			case <-e.stop:
				return
			default:
			}
		}
	}
}

// step lets the core do what is due and returns the real time until it has something to do again.
func (e *Engine) step(clock *int64) (wait time.Duration, busy bool) {
	at, ok := e.core.NextEvent(*clock)
	if !ok {
		return 0, false
	}
	if wait := e.Real(time.Duration(at - e.now())); wait > 0 {
		return wait, true
	}
	// A clock that fell more than a second behind (a suspended machine) does not race to catch up.
	if late := e.now() - at; late > int64(float64(time.Second)*e.speed) {
		at = e.now()
	}
	*clock = at
	d, events := e.core.Step(at)
	for i := range events {
		e.deliver(&events[i])
	}
	return 0, d > 0
}

func (e *Engine) deliver(ev *Event) {
	r := e.live[ev.ID]
	if r == nil {
		return
	}
	r.state.Tokens = ev.Tokens
	r.state.Cached = ev.Cached
	switch ev.Kind {
	case Admitted:
		r.state.Admitted = true
	case Finished:
		r.state.Finished = true
		delete(e.live, ev.ID)
	case Aborted:
		r.state.Aborted = true
		delete(e.live, ev.ID)
	}
	r.tell()
}
