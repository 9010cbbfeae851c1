// Package ring decides WHERE a turn runs: on the engine that holds its session's warm prefix.
//
// A Placer joins a consistent-hash ring per set of engines, an index that imitates the engines' prefix caches, the charges
// of the requests in flight and a table of sessions; Place picks an engine and charges it in one step. It is pure: no
// sockets, no clock (time comes in as an argument), and the same calls in the same order give the same decisions.
//
// Limits: 65,535 engines; sessions, index and learned model names are bounded by Options, and what is shed is counted.
// DESIGN.md has the ideas.
package ring

import (
	"sync"

	"github.com/warmring/warmring/ring/prompt"
)

// Placer places turns. It is safe for concurrent use.
type Placer struct {
	opt     Options
	setting sync.Mutex // held by SetEngines throughout, which builds rings outside mu

	mu          sync.Mutex // guards everything below
	now         int64
	engines     []*engine // by slot; nil = free
	generations []uint16  // by slot
	byName      map[string]*engine
	layout      *layout
	models      map[string]*model
	learned     int   // models that no engine lists
	other       model // stands for the model names beyond the bound
	fleetRate   rate  // over all engines
	index       index
	sessions    sessions
	sequence    uint64 // makes keys for sessions that begin alike, and ring keys for turns with nothing to hash
	charges     []Charge
	totals      Totals
	share       *sharing // nil = no other proxies

	// Scratch of the decision being made.
	chain      []prompt.Point
	kept       []prompt.Point
	keptHead   int // leading kept points within the head
	candidates []candidate
}

// New returns a Placer without engines.
func New(opt Options) *Placer {
	p := &Placer{opt: opt.withDefaults(), byName: map[string]*engine{}, models: map[string]*model{}}
	p.fleetRate.perSecond = p.opt.DefaultPrefillRate
	p.other.bytesPerToken = p.opt.DefaultBytesPerToken
	p.index.init(p.opt.MaxIndexTokens)
	p.sessions.init()
	p.candidates = make([]candidate, 0, maxCandidates)
	return p
}
