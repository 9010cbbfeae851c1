package gossip

import (
	"time"

	"github.com/warmring/warmring/ring"
)

// Ask is a request to let a turn by that waits behind a prefill of another proxy's. It names no victim: the asked one knows what is in
// the way by the time that it is asked.
type Ask struct {
	ID      uint64 // of this asking; the same when it is sent again
	Engine  uint32
	Request uint64 // the turn that waits, a number of the asker's own; the same when that turn asks again
	Over    bool   // it waits no more: what was held for it may go
}

// Answer is what came of an Ask.
type Answer uint8

// The answers.
const (
	NoAnswer Answer = iota // none came: the other proxy is gone, or cannot be reached
	Freed                  // something gave way since the turn first asked; told once for each turn
	TooLate                // nothing is in the way there
	Refused                // nothing gave way, or not yet: limits, or the end of what is in flight is near
)

// String returns the answer's name in logs and labels.
func (a Answer) String() string {
	switch a {
	case Freed:
		return "freed"
	case TooLate:
		return "too_late"
	case Refused:
		return "refused"
	}
	return "none"
}

// Sight is the state in which a proxy sees an engine.
type Sight struct {
	Engine uint32
	State  ring.State
}

// Readiness is how far the sender of a state is.
type Readiness uint8

// The steps. A member that does not say is taken to be ready, as those that cannot say become so with any state.
const (
	ReadinessUntold Readiness = iota
	Joining                   // it has no state of others yet: what it tells may be next to nothing
	Settled                   // it is ready
)

// Message is one message, read or to be written. The zero value is empty; Read reuses its slices.
type Message struct {
	Sender    uint32 // 0 = not told
	Sequence  uint64
	Interval  time.Duration // until the sender's next loads, at the latest
	Readiness Readiness

	Entries, Direct, Reply []Entry
	Loads, Loud            []ring.Load
	HasLoads               bool // Loads is what there is, even if it is nothing
	Ask                    Ask
	Answer                 Answer
	AnswerID               uint64
	Hashes                 []uint32
	Sights                 []Sight
	Digests                []Digest
	Speeds                 []ring.Speed
}

func (m *Message) reset() {
	*m = Message{
		Entries: m.Entries[:0], Direct: m.Direct[:0], Reply: m.Reply[:0], Loads: m.Loads[:0], Loud: m.Loud[:0],
		Hashes: m.Hashes[:0], Sights: m.Sights[:0], Digests: m.Digests[:0], Speeds: m.Speeds[:0],
	}
}
