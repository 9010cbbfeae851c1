package engines

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is one instance as the operator describes it. It does not change: a new description makes a new Engine with the same record. All methods are safe for concurrent use. Its state machine
// is drawn at State.
type Engine struct {
	Spec
	Target Target
	tls    *tls.Config
	*record
}

// record is what is known of an instance. It lasts as long as its name and address stay in the fleet, whatever else is said about it anew.
type record struct {
	fleet   *Fleet
	latest  atomic.Pointer[Engine] // its present description
	removed atomic.Bool            // no longer in the fleet: nobody is told of it any more
	stop    context.CancelFunc     // ends its probing; nil while there is none; guarded by fleet.probing
	wake    chan struct{}          // capacity 1: the probing goroutine looks again at what is due

	// calm and answeredAt keep the report of an ordinary answer, one per request, free of the lock.
	calm       atomic.Bool
	answeredAt atomic.Int64 // Unix nanoseconds

	wantProbe  atomic.Bool
	wantModels atomic.Bool
	wantFacts  atomic.Bool

	mu         sync.Mutex
	health     health
	published  State // as last announced
	facts      Facts
	modelsRead chan struct{} // closed when the list has been read, then replaced
	counts     Counts
	everReady  bool
	work       float64 // a counter that only a restart sets back, as last read; -1 = never
	workFrom   sources

	modelsHeard time.Time // when another proxy read the same list of models
	otherModels uint32    // the last list of another proxy's that differed

	firstProbe chan struct{} // closed after the first verdict
	first      sync.Once

	pending Change // guarded by fleet.changes
}

// Facts is what an engine has told about itself.
type Facts struct {
	Kind        Kind // Detect while unknown
	Version     string
	Models      []Model // listed, less those that the operator excludes; not to be changed
	ModelsKnown bool    // a list was read, even an empty one
	KVTokens    int64   // as reported; 0 = unknown
	StartTime   float64 // Unix seconds; 0 = unknown
	Running     int     // requests in the engine's own words at FactsAt; -1 = unknown
	Waiting     int
	KVUsage     float64 // 0 to 1; -1 = unknown
	FactsAt     time.Time
	ModelsAt    time.Time
}

// Counts are what happened to an engine since the start of the proxy.
type Counts struct {
	FactsRead   uint64 `json:"facts_read"`   // times that its pages were read here
	FactsHeard  uint64 `json:"facts_heard"`  // times that another proxy had read them
	Probes      uint64 `json:"probes"`       // requests sent to it by probing, all kinds
	ProbeErrors uint64 `json:"probe_errors"` // of these, without an answer
	Downs       uint64 `json:"downs"`        // times it became Down
	Restarts    uint64 `json:"restarts"`     // times it came back as another process
	Refused     uint64 `json:"refused"`      // reports of 429 and 503
	Failed      uint64 `json:"failed"`       // reports of other 5xx and of broken connections
	Unreachable uint64 `json:"unreachable"`  // reports of connect failures
}

// State tells whether it can be given work now.
func (e *Engine) State() State {
	now := e.fleet.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health.state(now)
}

// Reason says why it is not Ready, "" when it is.
func (e *Engine) Reason() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health.why()
}

// Report takes what a request met. Unreachable makes it Down at once; five Failed or Broken in a row open the breaker, each taken for another cause (see ReportFailure), and make it Busy until it is over; Refused makes it Busy for half a second; answers to clients' own mistakes
// are Answered and count for it, never against. Any bytes from the engine may be reported as Answered: it costs one atomic store.
func (e *Engine) Report(now time.Time, ev Event) { e.report(now, ev, 0, nil) }

// ReportFailure is Report(now, ev), for Failed and Broken, of a request known by its session, its prompt or both: hashes, 0 = none. Failures that share one are repeats of one cause, and the
// breaker needs three causes: a prompt that no engine can take, or a session stuck with one, is no fault of the engines it was tried on.
func (e *Engine) ReportFailure(now time.Time, ev Event, causes ...uint64) {
	e.report(now, ev, 0, causes)
}

// ReportBusy is Report(now, Refused) for an answer that carried Retry-After; more than 5 s is taken as 5 s.
func (e *Engine) ReportBusy(now time.Time, retryAfter time.Duration) {
	e.report(now, Refused, retryAfter, nil)
}

func (e *Engine) report(now time.Time, ev Event, retryAfter time.Duration, causes []uint64) {
	if ev == Answered {
		e.answeredAt.Store(now.UnixNano())
		if e.calm.Load() {
			return
		}
	}
	e.mu.Lock()
	switch ev {
	case Refused:
		e.counts.Refused++
	case Failed, Broken:
		e.counts.Failed++
	case Unreachable:
		e.counts.Unreachable++
	}
	probe := e.health.report(now, ev, retryAfter, causes)
	change := e.settle(now)
	e.mu.Unlock()
	if probe {
		e.wantProbe.Store(true)
	}
	if ev == Broken || ev == Unreachable {
		e.wantFacts.Store(true) // it may be another process by now
	}
	if probe || change != 0 {
		e.nudge()
	}
	e.fleet.notify(e, change)
}

// settle compares the state with what was last announced, and is called with mu held after every change.
func (e *Engine) settle(now time.Time) Change {
	h := &e.health
	e.calm.Store(h.base == Ready && h.silent == 0 && h.breaker.calm())
	state := h.state(now)
	if state == e.published {
		return 0
	}
	if state == Down {
		e.counts.Downs++
	}
	e.published = state
	return StateChanged
}

// RefreshModels has the list of models read again soon: for a 404 that says the list may be old (C171). Returns at once; bursts are one.
func (e *Engine) RefreshModels() {
	e.wantModels.Store(true)
	e.nudge()
}

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Models are the models it serves: what it lists, less what the operator excludes. While it has never listed any, the configured ones. Not to be changed.
func (e *Engine) Models() []Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.models()
}

func (e *Engine) models() []Model {
	if !e.facts.ModelsKnown && len(e.Spec.Models) > 0 {
		return configuredModels(e.Spec.Models)
	}
	return e.facts.Models
}

func configuredModels(names []string) []Model {
	models := make([]Model, len(names))
	for i, name := range names {
		models[i] = Model{ID: name, Raw: ownCard(name, "")}
	}
	return models
}

// KVTokens is its KV capacity in tokens: as it reports, else as configured, else 0 for unknown.
func (e *Engine) KVTokens() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kvTokens()
}

func (e *Engine) kvTokens() int64 {
	if e.facts.KVTokens > 0 {
		return e.facts.KVTokens
	}
	return e.Spec.KVTokens
}

// DetectedKind is the configured kind, else what asking found, else Detect while that is not settled.
func (e *Engine) DetectedKind() Kind {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kind()
}

func (e *Engine) kind() Kind {
	if e.Spec.Kind != Detect {
		return e.Spec.Kind
	}
	return e.facts.Kind
}

// Facts is a copy of all that it told.
func (e *Engine) Facts() Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.facts
	f.Kind, f.Models = e.kind(), e.models()
	return f
}

// Status is an engine as the admin API shows it. No secrets.
type Status struct {
	Name        string    `json:"name"`
	URL         string    `json:"url"`
	State       State     `json:"state"`
	Reason      string    `json:"reason,omitempty"`
	Since       time.Time `json:"since"`
	Drained     bool      `json:"drained"`
	Kind        Kind      `json:"kind"`
	Version     string    `json:"version,omitempty"`
	Weight      float64   `json:"weight"`
	KVTokens    int64     `json:"kv_tokens"` // 0 = unknown
	Models      []string  `json:"models"`
	MaxModelLen int       `json:"max_model_len,omitempty"` // the largest of its models
	Running     *int      `json:"running,omitempty"`       // as it says itself; absent = unknown
	Waiting     *int      `json:"waiting,omitempty"`
	KVUsage     *float64  `json:"kv_usage,omitempty"`
	Counts      Counts    `json:"counts"`
}

// Status is a snapshot for people.
func (e *Engine) Status() Status {
	now := e.fleet.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{
		Name: e.Name, URL: e.Target.String(), State: e.health.state(now), Reason: e.health.why(), Since: e.health.since, Drained: e.health.drained,
		Kind: e.kind(), Version: e.facts.Version, Weight: e.Weight, KVTokens: e.kvTokens(), Models: modelNames(e.models()), Counts: e.counts,
	}
	for _, m := range e.models() {
		s.MaxModelLen = max(s.MaxModelLen, m.MaxModelLen)
	}
	if f := e.facts; !f.FactsAt.IsZero() && now.Sub(f.FactsAt) < staleAfter { // an old value is unknown
		if f.Running >= 0 {
			s.Running = &f.Running
		}
		if f.Waiting >= 0 {
			s.Waiting = &f.Waiting
		}
		if f.KVUsage >= 0 {
			s.KVUsage = &f.KVUsage
		}
	}
	return s
}

// staleAfter is when a load figure says nothing any more.
const staleAfter = time.Minute

// Format keeps every verb of fmt from showing what is inside.
func (e *Engine) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.Name) }

// String is its name.
func (e *Engine) String() string { return e.Name }
