// Package lane decides WHEN a request may run on its engine: it keeps long prefills from blocking short turns.
//
// A Controller belongs to one engine. Requests with few fresh tokens (interactive) pass; those with many (long) are admitted
// within a budget, held back while interactive ones wait for their first token, and, once sent, taken back before their first
// token when an interactive one would wait for them too long. A credit in time sees to it that the long lane keeps its share.
//
// It is pure: no I/O, no clock (time comes in as int64 ns), no goroutines, and the same calls give the same decisions. It is
// not safe for concurrent use. Every call takes time that does not depend on how many requests are held or in flight (but
// for the logarithm of those held), and allocates only while it grows. DESIGN.md has the ideas and the arithmetic.
package lane

// Class is the lane of a request.
type Class uint8

const (
	Interactive Class = iota // few fresh tokens: passes at once
	Long                     // many: admitted, held, preempted
)

// String is "interactive" or "long".
func (c Class) String() string {
	if c == Long {
		return "long"
	}
	return "interactive"
}

// MarshalText writes the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Arrival is a request that wants to be sent to the engine.
type Arrival struct {
	ID      uint64 // the caller's, unique among those that have not left
	Tenant  uint64
	Fresh   int // tokens to prefill, estimated; the class depends on these alone
	Context int // tokens of the whole prompt, estimated; less than Fresh counts as Fresh
	// Unstreamed says that no first token will be seen, because the answer comes whole. The end of its prefill is guessed
	// then: late for what it means to others, early for its own preemption, which would throw its answer away.
	Unstreamed bool
	NoPreempt  bool // this request cannot be stopped at the engine, whatever Facts say
	NoSlices   bool // this prompt cannot be cut
	// Shared says that the engine has work of others in front of it, which this Controller does not see. How long an interactive
	// request then takes to its first token says nothing of the engine.
	Shared bool
	Bytes  int // of its body, which the caller keeps while the request is in the proxy
}

// Verdict is the answer to an Arrival.
type Verdict uint8

const (
	Go      Verdict = iota // send it now
	Held                   // keep it until its Admit action, which is among the next Actions already if it goes at once as a slice
	Full                   // refuse it (429): the long queue is full; it is not known to the Controller
	Crowded                // refuse it (429): too many interactive requests await their first token; it is not known to the Controller
)

// String is "go", "held", "full" or "crowded".
func (v Verdict) String() string { return [...]string{"go", "held", "full", "crowded"}[v] }

// ActionKind is something that the caller must do.
type ActionKind uint8

const (
	Admit   ActionKind = iota // send the held request now
	Preempt                   // stop it at the engine, then call Preempted, or Committed, or Leave
	Expire                    // it was held too long: refuse it (429); it is forgotten already
)

// String is "admit", "preempt" or "expire".
func (k ActionKind) String() string { return [...]string{"admit", "preempt", "expire"}[k] }

// Reason says why an action is wanted.
type Reason uint8

const (
	Quiet      Reason = iota // Admit: its turn in the long lane, and no interactive request waits for its first token
	Guaranteed               // Admit: interactive requests wait, but the long lane has a right to its share
	Immune                   // Admit: interactive requests wait, but this one was delayed enough
	Off                      // Admit: lanes were switched off
	Blocking                 // Preempt: an interactive request would wait too long behind it
	Overdue                  // Preempt: the engine was believed to serve interactive requests beside it, and did not
	Waited                   // Expire: held for Options.MaxWait
)

// String is the reason in lower case.
func (r Reason) String() string {
	return [...]string{"quiet", "guaranteed", "immune", "off", "blocking", "overdue", "waited"}[r]
}

// Action is what the caller must do for one request.
type Action struct {
	Kind   ActionKind
	ID     uint64
	Reason Reason
	// Tokens says, of Admit, what to send: 0 = the request itself; else a slice, which is the first Tokens tokens of the prompt
	// (of Arrival.Context, warm ones included, in the caller's estimate) with one token of output. The caller tells its end with
	// Sliced, or Leave.
	Tokens int
}

// Slice is what the engine said at the end of a slice.
type Slice struct {
	Prompt int // tokens of the slice's prompt as the engine counted them; negative = unknown
	Cached int // of these, found in its cache; negative = unknown
	// Failed says that there was no slice: the prompt could not be cut, or the engine did not answer it well.
	Failed bool
	// Refused says that Failed is the engine's doing. Where that happens to three requests in a row, no slices are sent to it for
	// 10 minutes: there are engines that fail at requests of that kind.
	Refused bool
}
