package ring

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/warmring/warmring/ring/prompt"
)

// Turn is one request to be placed. The Placer keeps nothing of it.
type Turn struct {
	Now     int64  // monotonic, ns
	Model   []byte // as the client named it; empty = any engine
	Session uint64 // key of the session that the client named, or a Decision.Session; 0 = none
	Parent  uint64 // key of the session that it was forked from; 0 = none

	// Prompt is the scanned and fingerprinted body. Nil (or an empty chain): no affinity but the session's, by load.
	Prompt *prompt.Prompt

	// Continues says that the prompt holds only what is new because the engine keeps the rest (previous_response_id): the
	// session stays where it is, whatever the chain says.
	Continues bool

	MaxTokens int      // the output limit asked for; 0 = unknown
	Exclude   []string // engines that have failed this very request
	Seed      uint64   // scope of the prompt's fingerprints: tenant and model. The same key in another scope is another session
}

// Reason is why an engine was chosen.
type Reason uint8

// The reasons.
const (
	Bound    Reason = iota // the session lives there
	Home                   // a new session, at the engine that the ring gives it
	Warm                   // a new session, at an engine that holds much of its prompt
	Parent                 // a new session, at its parent's engine
	Moved                  // the session lived elsewhere, but was cold there or would have waited very long, or that engine is draining
	Spill                  // a new session that another engine than its home serves cheaper or has more memory for
	Failover               // the engine of the session, or the one tried before, is gone or failed
	Only                   // there was no choice
)

var reasons = [...]string{"bound", "home", "warm", "parent", "moved", "spill", "failover", "only"}

// String returns the reason as it stands in the response header.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "none"
}

// Reasons are all reasons, for metrics that exist before they count.
func Reasons() []Reason { return []Reason{Bound, Home, Warm, Parent, Moved, Spill, Failover, Only} }

// MarshalText writes the reason as String does.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Candidate is an engine that was looked at for a turn, as it was before the turn was charged to it.
type Candidate struct {
	Engine  string  `json:"engine"`
	Cost    float64 `json:"cost"`    // seconds until the first token and what the turn costs others, see Placer.cost
	Warm    int     `json:"warm"`    // tokens of the prompt that it is believed to hold
	Waiting int     `json:"waiting"` // fresh tokens charged there
	FreeKV  int64   `json:"free_kv"` // capacity less the context of its active sessions; negative when overcommitted
}

// Decision is where a turn goes and why.
type Decision struct {
	Engine    string       `json:"engine"`
	Reason    Reason       `json:"reason"`
	Session   uint64       `json:"session"`   // resolved key; 0 = the turn belongs to no session
	Home      string       `json:"home"`      // what the ring alone would have chosen; empty when the turn has nothing to hash
	Warm      int          `json:"warm"`      // tokens of the prompt that the engine is believed to hold
	Prompt    int          `json:"prompt"`    // tokens of the prompt, estimated
	Available int          `json:"available"` // the most tokens of it that any engine which takes turns is believed to hold
	Runners   [4]Candidate `json:"runners"`   // cheapest first; the chosen one is among them
	N         int          `json:"n"`         // how many of Runners are set
	Turn      int          `json:"turn"`      // number of this turn in its session, from 1
	Extends   bool         `json:"extends"`   // the prompt extends what is known of the session
}

// MarshalJSON writes the session as 16 hex digits, as in the response header (a JSON number would lose its last bits), and
// the runners that are set.
func (d Decision) MarshalJSON() ([]byte, error) {
	type plain Decision
	return json.Marshal(struct {
		plain
		Session Key         `json:"session"`
		Runners []Candidate `json:"runners"`
		N       int         `json:"n,omitempty"`
	}{plain: plain(d), Session: Key(d.Session), Runners: d.Runners[:d.N]})
}

// Key is a session key as the outside sees it.
type Key uint64

// String writes 16 hex digits.
func (k Key) String() string { return fmt.Sprintf("%016x", uint64(k)) }

// MarshalText writes 16 hex digits.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads hex digits.
func (k *Key) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("session key %q: want 16 hex digits", text)
	}
	*k = Key(n)
	return nil
}

// Errors of Place.
var (
	ErrUnknownModel = errors.New("no engine serves the model")
	ErrNoEngine     = errors.New("no engine that serves the model takes turns now")
)
