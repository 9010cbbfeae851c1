package sim

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Entry is what the engine knows about one HTTP request.
type Entry struct {
	Seq        int64       `json:"seq"` // from 1, in order of arrival
	Time       time.Time   `json:"time"`
	Method     string      `json:"method"`
	Path       string      `json:"path"`
	Query      string      `json:"query,omitempty"`
	Header     http.Header `json:"header"`
	BodyBytes  int         `json:"body_bytes"`
	BodySHA256 string      `json:"body_sha256,omitempty"`
	Body       []byte      `json:"body,omitempty"` // only with KeepBodies
	// Copies is how many requests with this very body were alive on this engine at its arrival, itself
	// included: 1 unless somebody sent it twice.
	Copies int `json:"copies,omitempty"`

	ID           string    `json:"id,omitempty"` // as in the answer
	Stream       bool      `json:"stream,omitempty"`
	PromptTokens int       `json:"prompt_tokens,omitempty"`
	CachedTokens int       `json:"cached_tokens"` // -1: never scheduled
	OutputTokens int       `json:"output_tokens,omitempty"`
	Fault        string    `json:"fault,omitempty"`  // kind of the fault that hit it
	Status       int       `json:"status,omitempty"` // of the answer; 0 = none yet
	Outcome      Outcome   `json:"outcome"`          // how it ended
	FirstToken   time.Time `json:"first_token,omitzero"`
	Closed       time.Time `json:"closed,omitzero"`  // the first arrival of another request by which the client had closed
	Left         time.Time `json:"left,omitzero"`    // the client's close was noticed
	Aborted      time.Time `json:"aborted,omitzero"` // its memory was free again
	// Done is when it was over: an answer's end counts before its last bytes are written, so that the journal
	// never knows less than the client; else when the handler ended.
	Done time.Time `json:"done,omitzero"`
}

// Outcome says how a request ended.
type Outcome string

const (
	Open     Outcome = "open"     // not over yet
	Answered Outcome = "answered" // a complete answer was written
	Refused  Outcome = "refused"  // an error answer
	Gone     Outcome = "gone"     // the client left, or it was aborted
	Broken   Outcome = "broken"   // a fault cut it
)

// journal is a bounded ring of entries; the oldest are dropped first and counted.
type journal struct {
	keep int

	mu      sync.Mutex
	entries []*Entry // oldest first
	seq     int64
	dropped int64
	alive   map[string]int // live requests by body hash
	live    map[*Entry]net.Conn
	changed chan struct{} // closed and replaced at every change
}

func newJournal(keep int) *journal {
	return &journal{keep: keep, alive: map[string]int{}, live: map[*Entry]net.Conn{}, changed: make(chan struct{})}
}

// open adds an entry for a request that came on conn. Who closes a connection to end a request and then sends another one
// has done so in this order, whenever the server notices: so the close is looked for now.
func (j *journal) open(e *Entry, conn net.Conn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Time = time.Now()
	for other, c := range j.live {
		if c != nil && other.Closed.IsZero() && closedByPeer(c) {
			other.Closed = e.Time
		}
	}
	j.live[e] = conn
	j.seq++
	e.Seq, e.Outcome, e.CachedTokens = j.seq, Open, -1
	if e.BodySHA256 != "" {
		j.alive[e.BodySHA256]++
		e.Copies = j.alive[e.BodySHA256]
	}
	j.entries = append(j.entries, e)
	if n := len(j.entries) - j.keep; n > 0 {
		j.dropped += int64(n)
		clear(j.entries[:n])
		j.entries = j.entries[n:]
	}
	j.tell()
}

// note changes an entry.
func (j *journal) note(e *Entry, change func(e *Entry)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(e)
	j.tell()
}

// finish changes an entry and notes that its request is over, the first time.
func (j *journal) finish(e *Entry, change func(e *Entry)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(e)
	if e.Done.IsZero() {
		e.Done = time.Now()
		delete(j.live, e)
		if e.BodySHA256 != "" {
			if j.alive[e.BodySHA256]--; j.alive[e.BodySHA256] == 0 {
				delete(j.alive, e.BodySHA256)
			}
		}
	}
	j.tell()
}

func (j *journal) tell() {
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *journal) read() (entries []Entry, dropped int64, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		entries = append(entries, *e)
	}
	return entries, j.dropped, j.changed
}

func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.dropped = nil, 0
	j.tell()
}

// Log is a copy of the journal, oldest first. It covers all requests but those to /sim/.
func (s *Server) Log() []Entry {
	entries, _, _ := s.journal.read()
	return entries
}

// ClearLog empties the journal.
func (s *Server) ClearLog() { s.journal.clear() }

// Await waits until the journal satisfies a condition, or the context ends. The condition is looked at
// when the journal changes and every few milliseconds, so it may ask for the engine's Stats too.
func (s *Server) Await(ctx context.Context, condition func(log []Entry) bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		entries, _, changed := s.journal.read()
		if condition(entries) {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
