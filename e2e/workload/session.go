package workload

import (
	"net/http"
	"time"

	"github.com/warmring/warmring/ring/prompt"
)

// Workload is a set of sessions. It is not changed after Write and may be read from anywhere.
type Workload struct {
	Spec     Spec       // with its defaults filled in
	Sessions []*Session // parents before their children
}

// Kind is how a session came to be.
type Kind uint8

// The kinds of sessions.
const (
	Main     Kind = iota // begun by a person
	Fork                 // continues its parent's history in another way
	SubAgent             // spawned by its parent for a part of the task, with another head and no history
)

// String returns the kind's name.
func (k Kind) String() string { return [...]string{"main", "fork", "sub-agent"}[k] }

// Session is a chain of turns.
//
//	Begin or After ─▶ [Waits] ─▶ Pause ─▶ turn 0 ─▶ [Waits] ─▶ Pause ─▶ turn 1 ─▶ …
type Session struct {
	ID     string // in the shape of a UUID
	Number int    // place in Workload.Sessions
	Client Client
	Kind   Kind
	Parent *Session // of forks and sub-agents

	Begin time.Duration // after the start of the workload; for children, after their parent's turn From has ended
	From  int           // turn of the parent, from 0
	Turns []Turn

	model  string
	head   *head
	pieces []piece
}

// Turn is one request.
type Turn struct {
	Pause  time.Duration // between the end of the turn before, or what is waited for, and this one
	Waits  []*Session    // sub-agents that must have ended first
	Output int           // tokens that are asked for
	cut    int           // pieces in the prompt
}

// Request is a turn as it goes over the wire.
type Request struct {
	Family prompt.Family
	Path   string
	Header http.Header
	Body   []byte
}

// Request writes turn n, counted from 0. Each call makes new bytes.
func (s *Session) Request(n int) Request {
	return Request{Family: s.Client.Family, Path: s.Client.path(), Header: s.header(), Body: s.body(n)}
}

// Tokens is the length of turn n's prompt.
func (s *Session) Tokens(n int) int {
	total := s.head.tokens()
	for i := range s.pieces[:s.Turns[n].cut] {
		total += s.pieces[i].tokens()
	}
	return total
}

// head is what all sessions of a client begin with.
type head struct {
	system string
	tools  []tool
}

type tool struct{ name, about string }

// piece is one thing that was said.
type piece struct {
	kind pieceKind
	text string
	call string // id of a tool call and its result
	args string // of a call, a JSON object
}

type pieceKind uint8

const (
	said   pieceKind = iota // by the user
	line                    // by the agent, which is done for now
	called                  // by the agent, with a tool call
	result                  // of the tool
)

// Each piece costs a few tokens more than its text in a chat template.
const pieceOverhead = 4

func (p *piece) tokens() int {
	return (len(p.text)+len(p.args)+BytesPerToken-1)/BytesPerToken + pieceOverhead
}

func (h *head) tokens() int {
	n := len(h.system)
	for _, t := range h.tools {
		n += len(t.name) + len(t.about) + len(toolSchema)
	}
	return n/BytesPerToken + pieceOverhead
}
