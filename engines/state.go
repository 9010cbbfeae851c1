package engines

import (
	"strings"
	"time"
)

// State is whether an engine can be given work.
//
//	                     health ok and a model listed
//	Starting ────────────────────────────────────────────────▶ Ready ⇄ Busy
//	 ▲  ▲ │  connect fails                                      │ ▲      429/503 met: for 0.5 s or as Retry-After says;
//	 │  │ │                                                     │ │      5 failures of 3 causes: until a probe after the cool-down
//	 │  │ └───────────────▶ Down ◀──────────────────────────────┘ │
//	 │  │                    │ ▲   connect fails, health says no, │
//	 │  └────────────────────┘ │   3 silent probes                │
//	 │  answers, not yet ready │                                  │
//	 │                         └──────────────────────────────────┘
//	 │                          probe succeeds
//	 └────────▶ Unauthorized    a probe is answered 401 or 403; left by a probe that is not
//
// Draining is laid over Ready and Busy by the operator and taken off again. Only probes lead to Ready: no user's request is used to find out whether a dead engine lives (C169).
type State uint8

const (
	Starting     State = iota // not known to be ready yet: never probed, or loading
	Ready                     // healthy and serves a model
	Busy                      // answered 429 or 503 a moment ago, or fails request after request with a green health page: last resort
	Draining                  // healthy; takes no new sessions, because the operator said so
	Down                      // cannot be used: unreachable or unhealthy
	Unauthorized              // alive, but does not accept the configured key
)

func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Ready:
		return "ready"
	case Busy:
		return "busy"
	case Draining:
		return "draining"
	case Down:
		return "down"
	case Unauthorized:
		return "unauthorized"
	}
	return "unknown"
}

// MarshalText is the name, for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Usable tells whether requests may be sent at all: new ones when Ready or Busy, those of bound sessions when Draining too.
func (s State) Usable() bool { return s == Ready || s == Busy || s == Draining }

// Event is what a request met.
type Event uint8

const (
	Answered    Event = iota // a status below 500 except 429, or any sign of life: the engine works. A client's own errors are answers, too (C164)
	Refused                  // 429 or 503: full, not broken (C165)
	Failed                   // any other 5xx
	Broken                   // the connection ended before an answer
	Unreachable              // no connection could be made
	Late                     // 504: out of time with this work. Neither a failure nor a good answer: it tells how much work it was
)

func (e Event) String() string {
	switch e {
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case Broken:
		return "broken"
	case Unreachable:
		return "unreachable"
	case Late:
		return "late"
	}
	return "unknown"
}

// EventOf is the event of an answer's status.
func EventOf(status int) Event {
	switch {
	case status == 429 || status == 503:
		return Refused
	case status == 504:
		return Late
	case status >= 500 && status != 501: // 501 is the answer to a request that nobody supports
		return Failed
	}
	return Answered
}

// Change tells what is new about an engine; several at once are possible.
type Change uint8

const (
	StateChanged    Change = 1 << iota // State
	ModelsChanged                      // Models
	CapacityChanged                    // KVTokens
	KindChanged                        // DetectedKind
	Restarted                          // the process is another one: its cache is empty
)

func (c Change) String() string {
	var parts []string
	for i, name := range [...]string{"state", "models", "capacity", "kind", "restarted"} {
		if c&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "+")
}

const (
	silentProbes = 3                      // probes in a row without an answer, and without any request answered meanwhile, that make an engine Down
	busyShort    = 500 * time.Millisecond // how long one 429/503 keeps new work away: an engine's queue empties in steps of this order
	busyLongest  = 5 * time.Second        // a Retry-After beyond this is advice for clients, not for a router that has nowhere else to go
)
