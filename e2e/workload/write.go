package workload

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Write makes the workload that a Spec describes.
func (s Spec) Write() *Workload {
	s = s.withDefaults()
	w := &writer{Workload: &Workload{Spec: s}, heads: map[string]*head{}}
	roles := w.roles()
	for i := range s.Sessions {
		main := w.session(i, Main, s.Clients[i%len(s.Clients)], nil)
		main.Begin = w.between(s.Begin)
		w.play(main, w.skewed(s.First), w.draw(s.Turns), roles[i] == long)
		switch roles[i] {
		case forking:
			w.fork(main)
		case spawning:
			w.spawn(main)
		}
	}
	return w.Workload
}

// writer draws all that is written from one random sequence per session, so that a session does not depend on what
// else is in the workload.
type writer struct {
	*Workload
	rng   *rand.Rand
	heads map[string]*head
}

// role is what a main session does beside its turns; at most one thing each.
type role uint8

const (
	plain role = iota
	forking
	spawning
	long
)

// roles deals the special roles evenly over the main sessions.
func (w *writer) roles() []role {
	s := &w.Spec
	roles := make([]role, s.Sessions)
	deal := func(r role, n int) {
		for k := range min(n, s.Sessions) {
			at := (2*k + 1) * s.Sessions / (2 * n)
			for i := range roles { // the next one that has none
				if at := (at + i) % len(roles); roles[at] == plain {
					roles[at] = r
					break
				}
			}
		}
	}
	deal(forking, s.Forks)
	deal(spawning, s.SubAgents)
	deal(long, s.Long)
	return roles
}

// session begins a session and its random sequence, which does not depend on the salt: sizes must not.
func (w *writer) session(origin int, kind Kind, client Client, parent *Session) *Session {
	w.rng = rand.New(rand.NewPCG(w.Spec.Seed, uint64(origin)<<8|uint64(kind)<<6|uint64(len(w.childrenOf(parent)))))
	s := &Session{
		Number: len(w.Sessions), Client: client, Kind: kind, Parent: parent, model: w.Spec.Model, ID: w.id(),
		head: w.headOf(client, kind),
	}
	w.Sessions = append(w.Sessions, s)
	return s
}

func (w *writer) childrenOf(parent *Session) (children []*Session) {
	if parent == nil {
		return nil
	}
	for _, s := range w.Sessions {
		if s.Parent == parent {
			children = append(children, s)
		}
	}
	return children
}

// id is a random UUID of version 4, different for each salt.
func (w *writer) id() string {
	salt := fnv.New64a()
	salt.Write([]byte(w.Spec.Salt))
	a, b := w.rng.Uint64()^salt.Sum64(), w.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0xfff, b&0xffffffffffff)
}

// play appends turns to a session that has its history, if it has one, and adds a first message.
func (w *writer) play(s *Session, first, turns int, long bool) {
	spec := &w.Spec
	s.pieces = append(s.pieces, piece{kind: said, text: w.text("Task", first)})
	var pause time.Duration
	if s.Kind != Main {
		pause = w.between(spec.Tool)
	}
	for n := range turns {
		s.Turns = append(s.Turns, Turn{Pause: pause, Output: w.draw(spec.Answer), cut: len(s.pieces)})
		size := w.skewed(spec.More)
		if long && n == turns/3 {
			size = w.draw(spec.Huge)
		}
		answer := w.draw(spec.Answer)
		if w.rng.IntN(4) == 0 && !(long && n == turns/3) {
			s.pieces = append(s.pieces, piece{kind: line, text: w.text("Done:", answer)}, piece{kind: said, text: w.text("Next:", size)})
			pause = w.between(spec.Human)
			continue
		}
		call := fmt.Sprintf("call_%016x", w.rng.Uint64())
		args := fmt.Sprintf(`{"path":"src/%08x.go","from":%d}`, w.rng.Uint32(), w.rng.IntN(2000))
		s.pieces = append(s.pieces,
			piece{kind: called, text: w.text("So", answer), call: call, args: args},
			piece{kind: result, text: w.text("File", size), call: call})
		pause = w.between(spec.Tool)
	}
}

// fork continues a session's history from its middle in another way, as soon as it has come there.
func (w *writer) fork(parent *Session) {
	s := w.session(parent.Number, Fork, parent.Client, parent)
	s.From = len(parent.Turns) / 2
	cut := parent.Turns[s.From].cut + 1 // with the agent's answer
	if parent.pieces[cut-1].kind == called {
		cut++ // a call is never left without its result
	}
	s.pieces = append(s.pieces, parent.pieces[:cut]...)
	w.play(s, w.skewed(w.Spec.More), max(len(parent.Turns)/2, 1), false)
	s.Begin, s.Turns[0].Pause = w.between(w.Spec.Human), 0
}

// spawn sends two sub-agents off from a third of a session, which goes on when they are done.
func (w *writer) spawn(parent *Session) {
	from := len(parent.Turns) / 3
	for range 2 {
		s := w.session(parent.Number, SubAgent, parent.Client, parent)
		s.From = from
		w.play(s, w.skewed(w.Spec.First)/2+1, max(len(parent.Turns)/3, 1), false)
		s.Turns[0].Pause = 0
		s.Begin = w.between(w.Spec.Tool)
		if next := from + 1; next < len(parent.Turns) {
			parent.Turns[next].Waits = append(parent.Turns[next].Waits, s)
		}
	}
}

// headOf gives the tools and the system prompt of a client, which all its sessions share. Chat clients without a
// character of their own have one in common, as agents built with the same framework do.
func (w *writer) headOf(c Client, kind Kind) *head {
	name := c.Family.String()
	if kind == SubAgent {
		name += " helper"
	}
	if h := w.heads[name]; h != nil {
		return h
	}
	seed := fnv.New64a()
	seed.Write([]byte(name))
	sessions := w.rng
	defer func() { w.rng = sessions }()
	w.rng = rand.New(rand.NewPCG(w.Spec.Seed, seed.Sum64()))
	size := w.draw(w.Spec.Head)
	h := &head{}
	count := 6
	if kind == SubAgent {
		count = 3
	}
	for i := range count {
		// The salt must come first in the prompt, and tools are rendered before the system prompt.
		t := tool{name: toolNames[i], about: w.Spec.Salt + w.text("Tool of "+name+":", size/2/count)}
		h.tools = append(h.tools, t)
	}
	h.system = w.Spec.Salt + w.text("You are an agent of the kind "+name+".", max(size-h.tokens(), 1))
	w.heads[name] = h
	return h
}

var toolNames = [...]string{"read_file", "search", "shell", "edit", "list", "fetch"}

func (w *writer) draw(r Range) int {
	if r.Max <= r.Min {
		return r.Min
	}
	return r.Min + w.rng.IntN(r.Max-r.Min+1)
}

// skewed draws small values more often: the square of an even draw. Most steps of recorded agents add little.
func (w *writer) skewed(r Range) int {
	u := w.rng.Float64()
	return r.Min + int(float64(r.Max-r.Min)*u*u)
}

func (w *writer) between(s Span) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(w.rng.Int64N(int64(s.Max-s.Min)))
}
