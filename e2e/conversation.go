package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Session is one conversation as an agent would hold it: the prompt of each turn extends the one before.
type Session struct {
	ID      string
	Parent  *Session    // a fork begins where its parent's turn From ended
	From    int         // turn of the parent, from 1
	Prompts [][]Message // what is sent at each turn
}

// Story describes conversations to write. The same story is written the same way each time; stories that differ in nothing
// but the salt have the same sizes and share no text.
type Story struct {
	Salt     string // six letters or so, at the very beginning of each prompt
	Sessions int
	Turns    int
	Forks    int // so many of the sessions, evenly spread, fork off a child half way, which goes on for half as many turns
	System   int // words of the system prompt that all sessions share
	First    int // words of the first user message
	More     int // words of each later one, and of each answer
}

// Write the sessions, parents before their forks. The assistants' lines are part of the script, so that two runs of one
// story send the same prompts whatever the engines answer.
func (s Story) Write() []*Session {
	random := rand.New(rand.NewPCG(7, uint64(s.Sessions))) // not of the salt: sizes must not depend on it
	system := Message{"system", "Story " + s.Salt + ". You are a careful agent. " + words(random, s.System)}
	var all, forks []*Session
	every := s.Sessions + 1
	if s.Forks > 0 {
		every = max(s.Sessions/s.Forks, 1)
	}
	for i := range s.Sessions {
		parent := &Session{ID: fmt.Sprintf("%s-%02d", s.Salt, i+1)}
		history := []Message{system, {"user", fmt.Sprintf("Task %d: %s", i+1, words(random, s.First))}}
		parent.play(random, history, s.Turns, s.More)
		all = append(all, parent)
		if i%every == 0 && len(forks) < s.Forks {
			fork := &Session{ID: parent.ID + "-fork", Parent: parent, From: s.Turns / 2}
			history := append([]Message(nil), parent.Prompts[fork.From]...) // of the turn behind, less its question
			history[len(history)-1] = Message{"user", "Another way: " + words(random, s.More)}
			fork.play(random, history, s.Turns/2, s.More)
			forks = append(forks, fork)
		}
	}
	return append(all, forks...)
}

// play writes so many turns from a first prompt on.
func (s *Session) play(random *rand.Rand, history []Message, turns, size int) {
	for range turns {
		s.Prompts = append(s.Prompts, append([]Message(nil), history...))
		history = append(history, Message{"assistant", words(random, size)}, Message{"user", words(random, size)})
	}
}

// words of an invented language: short enough to be about one and a half tokens each.
func words(random *rand.Rand, n int) string {
	const syllables = "be do ka lu mi no pe ra so tu we xi ya zo fen gar hol"
	parts := strings.Fields(syllables)
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		for range 1 + random.IntN(2) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
	}
	return b.String()
}
