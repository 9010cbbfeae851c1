package sim

import (
	"errors"
	"fmt"
	"time"
)

// Errors of Submit.
var (
	ErrQueueFull = errors.New("the request queue is full")
	ErrTooLong   = errors.New("prompt is longer than the engine can hold")
	ErrDuplicate = errors.New("a request with this id is already known")
	ErrEmpty     = errors.New("prompt is empty")
)

// Request is one generation.
type Request struct {
	ID     string
	Prompt Prompt
	// Output are the ids of the tokens it will generate, for engines that cache answers. Tokens
	// beyond its end get ids that no prompt can repeat.
	Output []uint64
	// MaxTokens ends the answer; less than 1 counts as 1. Longer than the model allows is cut.
	MaxTokens int
}

// EventKind says what happened to a request at the end of a step.
type EventKind uint8

const (
	Admitted   EventKind = iota // it was scheduled for the first time; Cached is known
	FirstToken                  // the prefill is done
	Token                       // one more token
	Finished                    // follows the last token
	Aborted                     // its abort has taken effect, its memory is free
)

// String names the kind.
func (k EventKind) String() string {
	return [...]string{"admitted", "first token", "token", "finished", "aborted"}[k]
}

// Event is one thing that happened to a request.
type Event struct {
	Kind   EventKind
	ID     string
	Cached int // prompt tokens found in the cache when it was first scheduled
	Tokens int // tokens produced so far
}

// Stats are a core's counters and levels, in tokens where nothing else is said.
type Stats struct {
	Running, Waiting int   // requests, as the mode's own load page counts them
	WaitingFresh     int   // prompt tokens still to be prefilled by requests without a first token
	Used             int   // KV held by live requests
	Stored           int   // KV that holds something findable or held
	Capacity         int   // KV in all
	Queried, Hit     int64 // prompt tokens looked up at admission, and found
	Prefilled        int64 // prompt tokens computed (recomputation after preemption included)
	Decoded          int64 // tokens produced
	Evicted          int64 // tokens that lost their place in the cache
	Preempted        int64 // requests thrown back for lack of memory
	Done, Dropped    int64 // requests finished, aborted
	Steps            int64
	Busy             time.Duration // sum of all steps
}

// scheduler is what the three modes differ in.
type scheduler interface {
	// submit queues a sequence.
	submit(s *sequence) error
	// abort starts the end of a sequence; done through Core.drop, at once or later.
	abort(s *sequence)
	// plan chooses the work of the next step and reserves memory for it.
	plan(batch []work) []work
	// finish applies a step's results.
	finish(batch []work)
	// reset drops cached content that nobody uses; false if it cannot now.
	reset() bool
	// stats adds levels.
	stats(st *Stats)
}

// work is what one step does for one sequence.
type work struct {
	seq     *sequence
	tokens  int
	context int // tokens before these
	decode  bool
}

// sequence is a request with its progress.
type sequence struct {
	req      Request
	chain    []uint64 // hashes of full blocks of prompt and answer
	state    uint64   // hash over all tokens
	computed int      // tokens whose KV exists
	total    int      // prompt and produced tokens
	produced int
	cached   int // -1 until first scheduled
	aborting bool

	blocks  []int32    // paged: blocks held
	node    *radixNode // chunked: deepest node locked for it
	stashed int        // chunked: its blocks in the tree, counted from the beginning
	held    int        // chunked: its blocks outside the tree
	slot    int        // slots: slot + 1; 0 = waiting
}

// Core is an engine's scheduler and cache as a pure step machine: time is an argument, nothing runs by
// itself. Use by one goroutine at a time.
//
//	Submit ──▶ waiting ──Step──▶ running ──Step──▶ … ──Step──▶ Finished
//	               ▲                │ no memory                  Aborted (at a step's end)
//	               └────────────────┘
type Core struct {
	opt    Options
	sched  scheduler
	live   map[string]*sequence
	aborts []*sequence
	batch  []work
	flying bool  // a step is in flight
	end    int64 // its end, ns
	events []Event
	total  Stats
	salt   uint64
}

// NewCore makes an engine with an empty cache.
func NewCore(opt Options) *Core {
	c := &Core{opt: opt.withDefaults(), live: map[string]*sequence{}}
	switch c.opt.Mode {
	case SGLang:
		c.sched = newChunked(c)
	case Llama:
		c.sched = newSlots(c)
	default:
		c.sched = newPaged(c)
	}
	return c
}

// Options are the options in force, defaults filled in.
func (c *Core) Options() Options { return c.opt }

// Submit queues a request for the next step. The caller steps the core when it is idle.
func (c *Core) Submit(r Request) error {
	switch {
	case r.Prompt.Tokens < 1:
		return ErrEmpty
	case r.Prompt.Tokens >= c.opt.MaxModelLen:
		return fmt.Errorf("%w: %d tokens, at most %d with one to generate", ErrTooLong, r.Prompt.Tokens, c.opt.MaxModelLen)
	case c.live[r.ID] != nil:
		return fmt.Errorf("%w: %q", ErrDuplicate, r.ID)
	case len(r.Prompt.Blocks) != r.Prompt.Tokens/c.opt.BlockTokens:
		return fmt.Errorf("prompt has %d block hashes for %d tokens: it was hashed for another block size than %d",
			len(r.Prompt.Blocks), r.Prompt.Tokens, c.opt.BlockTokens)
	}
	r.MaxTokens = min(max(r.MaxTokens, 1), c.opt.MaxModelLen-r.Prompt.Tokens)
	n := len(r.Prompt.Blocks)
	s := &sequence{req: r, chain: r.Prompt.Blocks[:n:n], state: r.Prompt.End, total: r.Prompt.Tokens, cached: -1}
	if err := c.sched.submit(s); err != nil {
		return err
	}
	c.live[r.ID] = s
	return nil
}

// Abort asks for a request's end; it takes effect in a later Step, which reports Aborted. An unknown
// id does nothing and answers false.
func (c *Core) Abort(id string) bool {
	s := c.live[id]
	if s == nil || s.aborting {
		return false
	}
	s.aborting = true
	c.aborts = append(c.aborts, s)
	return true
}

// NextEvent is when Step has something to do: the end of the step in flight, now if requests wait and
// none is in flight, else ok is false.
func (c *Core) NextEvent(now int64) (at int64, ok bool) {
	switch {
	case c.flying:
		return c.end, true
	case len(c.live) > 0:
		return now, true
	}
	return 0, false
}

// Step ends the step in flight, whose events it returns, and begins the next one, which lasts d. A d
// of 0 means the core is idle. Before the end of the step in flight it changes nothing and returns
// the rest of its time. The events are valid until the next call.
func (c *Core) Step(now int64) (d time.Duration, events []Event) {
	if c.flying && now < c.end {
		return time.Duration(c.end - now), nil
	}
	c.events = c.events[:0]
	// vLLM drops aborted requests just before it applies the step's results, the others after that.
	if c.opt.Mode == VLLM {
		c.applyAborts()
	}
	if c.flying {
		c.flying = false
		c.sched.finish(c.batch)
	}
	if c.opt.Mode != VLLM {
		c.applyAborts()
	}
	clear(c.batch) // let go of finished sequences
	c.batch = c.sched.plan(c.batch[:0])
	if len(c.batch) == 0 {
		return 0, c.events
	}
	for i := range c.batch {
		if w := &c.batch[i]; !w.decode {
			c.total.Prefilled += int64(w.tokens)
		}
	}
	d = c.opt.Cost.of(c.batch)
	c.flying, c.end = true, now+int64(d)
	c.total.Steps++
	c.total.Busy += d
	return d, c.events
}

// ResetCache drops what no live request uses. SGLang and vLLM refuse while anything runs.
func (c *Core) ResetCache() bool { return c.sched.reset() }

// Live is how many requests are neither finished nor dropped.
func (c *Core) Live() int { return len(c.live) }

// Stats reads counters and levels.
func (c *Core) Stats() Stats {
	st := c.total
	c.sched.stats(&st)
	return st
}

func (c *Core) applyAborts() {
	for _, s := range c.aborts {
		if c.live[s.req.ID] == s {
			c.sched.abort(s)
		}
	}
	clear(c.aborts)
	c.aborts = c.aborts[:0]
}

func (c *Core) emit(kind EventKind, s *sequence) {
	c.events = append(c.events, Event{Kind: kind, ID: s.req.ID, Cached: max(s.cached, 0), Tokens: s.produced})
}

// admit notes a sequence's first scheduling.
func (c *Core) admit(s *sequence, cached int) {
	c.total.Queried += int64(s.total)
	c.total.Hit += int64(cached)
	if s.cached < 0 {
		s.cached = cached
		c.emit(Admitted, s)
	}
}

// produce appends one token to a sequence and says whether it was the last.
func (c *Core) produce(s *sequence) (last bool) {
	token := uint64(0)
	if s.produced < len(s.req.Output) {
		token = s.req.Output[s.produced]
	} else {
		c.salt++
		token = 1<<63 | c.salt // no tokenizer makes ids with the top bit
	}
	s.state = chain(s.state, token)
	s.produced++
	s.total++
	c.total.Decoded++
	if s.total%c.opt.BlockTokens == 0 {
		s.chain = append(s.chain, s.state)
	}
	if s.produced == 1 {
		c.emit(FirstToken, s)
	} else {
		c.emit(Token, s)
	}
	return s.produced >= s.req.MaxTokens
}

// retire forgets a sequence whose memory is already free.
func (c *Core) retire(kind EventKind, s *sequence) {
	delete(c.live, s.req.ID)
	if kind == Finished {
		c.total.Done++
	} else {
		c.total.Dropped++
	}
	c.emit(kind, s)
}
