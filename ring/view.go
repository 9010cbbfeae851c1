package ring

import (
	"encoding/json"
	"slices"
)

// ByReason counts turns by the reason of their decision.
type ByReason [Only + 1]uint64

// MarshalJSON writes an object.
func (b ByReason) MarshalJSON() ([]byte, error) {
	m := make(map[string]uint64, len(b))
	for r, n := range b {
		m[Reason(r).String()] = n
	}
	return json.Marshal(m)
}

// Totals counts events since the start.
type Totals struct {
	Placed       ByReason `json:"placed"`
	UnknownModel uint64   `json:"unknown_model"`
	NoEngine     uint64   `json:"no_engine"`
	Sessions     uint64   `json:"sessions_created"`
	Expired      uint64   `json:"sessions_expired"`
	SessionsShed uint64   `json:"sessions_shed"` // forgotten because of MaxSessions
	Adopted      uint64   `json:"sessions_compacted"`
	Evicted      uint64   `json:"index_evicted"` // segments dropped at an engine's capacity, as the engine does
	IndexShed    uint64   `json:"index_shed"`    // segments dropped because of MaxIndexTokens
	Corrected    uint64   `json:"index_corrected"`
	Forgotten    uint64   `json:"index_forgotten"` // times that an engine's cache was reset
	More         uint64   `json:"answers_with_more_cached"`
	Less         uint64   `json:"answers_with_less_cached"`
	Expected     uint64   `json:"expected_cached_tokens"`
	Cached       uint64   `json:"cached_tokens"`
}

// Gauges is the state of the whole Placer.
type Gauges struct {
	Engines        int    `json:"engines"`
	Waiting        int64  `json:"waiting_fresh_tokens"`
	Queued         int    `json:"requests_in_prefill"`
	Running        int    `json:"requests_in_decode"`
	Held           int64  `json:"context_tokens_without_session"`
	Context        int64  `json:"context_tokens"`
	Sessions       int    `json:"sessions"`
	ActiveSessions int    `json:"active_sessions"`
	SharedHeads    int    `json:"shared_heads"`
	Models         int    `json:"models"`
	IndexTokens    int64  `json:"index_tokens"`
	IndexPoints    int    `json:"index_points"`
	IndexBytes     int64  `json:"index_bytes"`
	SessionBytes   int64  `json:"session_bytes"`
	RingPoints     int    `json:"ring_points"`
	Totals         Totals `json:"totals"`
}

// Gauges returns the state of the whole Placer and its totals. After a run Waiting, Queued, Running and Held are 0.
func (p *Placer) Gauges() Gauges {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := Gauges{
		Engines: len(p.byName), Sessions: p.sessions.all.len(), ActiveSessions: p.sessions.active.n,
		SharedHeads: p.sessions.heads.len(), Models: len(p.models), IndexTokens: p.index.tokens,
		IndexPoints: p.index.entries.len(), IndexBytes: p.index.bytes(), SessionBytes: p.sessions.bytes(), Totals: p.totals,
	}
	g.Totals.Expired, g.Totals.SessionsShed = p.sessions.Expired, p.sessions.Shed
	g.Totals.Evicted, g.Totals.IndexShed = p.index.Evicted, p.index.Shed
	for _, e := range p.engines {
		if e != nil {
			g.Waiting += e.waiting
			g.Queued += e.queued
			g.Running += e.running
			g.Held += e.held
			g.Context += e.context
		}
	}
	if p.layout != nil {
		for _, pool := range p.layout.pools {
			g.RingPoints += len(pool.ring.hashes)
		}
	}
	return g
}

// EngineView is the state of one engine.
type EngineView struct {
	Name        string   `json:"name"`
	State       State    `json:"state"`
	Weight      float64  `json:"weight,omitempty"`
	Models      []string `json:"models,omitempty"` // absent = any
	Waiting     int64    `json:"waiting_fresh_tokens"`
	Queued      int      `json:"requests_in_prefill"`
	Running     int      `json:"requests_in_decode"`
	Context     int64    `json:"context_tokens"` // of active sessions and of requests without one
	Capacity    int64    `json:"kv_tokens"`
	KVKnown     bool     `json:"kv_known"`
	IndexTokens int64    `json:"index_tokens"`
	IndexPoints int      `json:"index_points"`
	PrefillRate float64  `json:"prefill_tokens_per_second"`
	RateSamples int      `json:"prefill_rate_samples"` // below 3 the rate is the fleet's
	Sessions    int      `json:"sessions"`
	Placed      uint64   `json:"placed"`
	Caches      bool     `json:"caches"` // false: its answers show that it does not cache prefixes
}

// Snapshot returns the state of all engines, by name.
func (p *Placer) Snapshot() []EngineView {
	p.mu.Lock()
	defer p.mu.Unlock()
	var views []EngineView
	for _, e := range p.engines {
		if e == nil {
			continue
		}
		c := &p.index.caches[e.slot]
		views = append(views, EngineView{
			Name: e.Name, State: e.State, Weight: e.Weight, Models: e.Models, Waiting: e.waiting, Queued: e.queued,
			Running: e.running, Context: e.live(), Capacity: e.capacity, KVKnown: e.KVTokens > 0, IndexTokens: c.tokens,
			IndexPoints: c.points, PrefillRate: p.rateOf(e), RateSamples: e.rate.samples, Sessions: e.sessions,
			Placed: e.placed, Caches: !e.cacheless(),
		})
	}
	slices.SortFunc(views, func(a, b EngineView) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return views
}

// SessionView is what is remembered of one session.
type SessionView struct {
	Key      Key    `json:"key"`
	Engine   string `json:"engine"` // empty: it is gone
	Turns    int    `json:"turns"`
	Context  int    `json:"context_tokens"`
	InFlight int    `json:"in_flight"`
	Seen     int64  `json:"seen"` // time of its last turn or answer, on the clock of Turn.Now
	Active   bool   `json:"active"`
	Parent   Key    `json:"parent,omitempty"` // of a side session: the one it belongs to
	Side     bool   `json:"side,omitempty"`
	Named    bool   `json:"named"` // it has a key of the client's; else it is known by its prompt
}

func (p *Placer) viewSession(i uint32) SessionView {
	s := p.sessions.all.at(i)
	v := SessionView{
		Key: Key(s.key), Turns: int(s.turns), Context: int(s.context), InFlight: int(s.inFlight), Seen: s.seen,
		Active: s.active, Parent: Key(s.parent), Side: s.side, Named: s.named,
	}
	if e := p.engineOf(s.engine); e != nil {
		v.Engine = e.Name
	}
	return v
}

// Sessions returns up to max sessions, the most recently seen first.
func (p *Placer) Sessions(max int) []SessionView {
	p.mu.Lock()
	defer p.mu.Unlock()
	views := []SessionView{}
	for _, l := range [2]*list{&p.sessions.active, &p.sessions.idle} {
		for i := l.newest; i != none && len(views) < max; i = p.sessions.all.at(i).older {
			views = append(views, p.viewSession(i))
		}
	}
	return views
}

// Session returns one session, by the key of a Decision.
func (p *Placer) Session(key uint64) (SessionView, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.sessions.find(key)
	if i == none {
		return SessionView{}, false
	}
	return p.viewSession(i), true
}
