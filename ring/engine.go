package ring

// State is what an engine can take.
//
//	Unknown ──▶ Ready ◀──▶ Busy          take work (Busy as a last resort)
//	   │          │  ▲       │
//	   └──────────┼──┴───────┤
//	              ▼          ▼
//	          Draining ◀──▶ Down         take none; Draining finishes what it runs
type State uint8

// The states. An engine nobody has heard of yet (Unknown) is used like a Ready one: what is not known is not held against it.
const (
	Unknown State = iota
	Ready
	Busy     // answered 429 or 503 lately: new sessions go there only if all others are worse off; bound ones stay
	Draining // takes no new turns
	Down
)

// String returns the state's name in logs, labels and the admin API.
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Busy:
		return "busy"
	case Draining:
		return "draining"
	case Down:
		return "down"
	}
	return "unknown"
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// takesTurns tells whether turns may be placed there at all.
func (s State) takesTurns() bool { return s == Unknown || s == Ready || s == Busy }

// Engine is what the Placer is told of one engine.
type Engine struct {
	Name     string
	Weight   float64  // share of the ring's keys relative to the others; 0 = 1; at most 1,000
	KVTokens int64    // capacity of its prefix cache in tokens; 0 = unknown
	Models   []string // names it serves; nil = any
	State    State
}

// engine is the recorded state of one engine. Its counters are exact: what Place adds, FirstToken and Release take away.
type engine struct {
	Engine
	slot       uint16
	generation uint16 // of the slot, so that a binding to a removed engine is not taken for one to its successor

	waiting  int64 // fresh tokens of requests that wait for their first token
	queued   int   // these requests
	running  int   // requests that have had their first token
	held     int64 // context tokens of requests in flight that belong to no session
	context  int64 // context tokens of its sessions that were active lately
	sessions int   // bound to it
	placed   uint64
	arrivals uint64 // charges, to tell whether a prefill was alone

	capacity  int64 // believed KV tokens
	rate      rate
	heardRate float64 // tokens per second, as another proxy has learned; 0 = unknown

	remote    remoteLoad // what other proxies have there
	loud      bool       // its load waits to be told to them
	coldSince int64      // when its cache was last known to be empty

	suspect        int64  // when chains must have been used last to be believed, if a second session says so too
	suspectSession uint64 // the first that said so
	uncached       int    // answers in a row that had nothing cached where something was expected
}

// ref names an engine in a session's record: its slot and the slot's generation.
type ref uint32

func (e *engine) ref() ref { return ref(e.slot) | ref(e.generation)<<16 }

// inFlight is how many requests are charged.
func (e *engine) inFlight() int { return e.queued + e.running }

// live is the context in tokens that the engine has to keep to serve its active sessions.
func (e *engine) live() int64 { return e.context + e.held + e.remote.context }

// overflow is what a presence of so many tokens would push out of the engine's memory, beyond what is pushed out already.
// A guard for overcommitted fleets asks the same question before it lets a cold turn in.
func (e *engine) overflow(tokens int64) int64 {
	return min(tokens, max(0, e.live()+tokens-e.capacity))
}

// cacheless tells that the engine does not cache prefixes at all, as far as its answers show.
func (e *engine) cacheless() bool { return e.uncached >= 16 }
