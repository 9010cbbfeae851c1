package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmring/warmring/e2e"
)

// crowd is some sessions that take turns at any proxy.
type crowd struct {
	f        *fleet
	named    bool
	among    []int // proxies that they use; empty = all
	forks    kin   // what sessions that race fork off now and then
	together int   // how many take a turn at a time in a round; 0 = all
	sessions []*session

	turns, strays, moves, errors atomic.Int64
	forked, astray, elsewhere    atomic.Int64 // forks' first turns; those that began cold; those on an engine that is as warm as their parent's
}

type session struct {
	number  int
	random  *rand.Rand
	header  map[string]string
	history []e2e.Message
	lives   string
	last    *e2e.Warmring // where its last turn went
	path    string        // its last turns, for whoever wants to know why it went astray
	parent  bool          // lives is its parent's: it has not taken a turn yet
}

// kin is how a fork tells whose it is.
type kin int

const (
	none     kin = iota
	nameless     // by its prompt alone
	named        // it has an id of its own, and its parent's prompt
	child        // it names its parent, too
)

func (k kin) String() string {
	return [...]string{"none", "without ids", "with ids of their own", "that name their parent"}[k]
}

// firstWords are about 4,000 tokens, little for an agent. Where a prompt is worth less than a queue of some turns, nobody would follow it.
const firstWords = 3200

func (f *fleet) crowd(sessions int, named bool) *crowd {
	c := &crowd{f: f, named: named}
	for n := range sessions {
		s := &session{number: n, random: rand.New(rand.NewPCG(uint64(n), 9))}
		f.crowds++
		s.history = []e2e.Message{{Role: "user", Content: fmt.Sprintf("session %d of crowd %d %s", n, f.crowds, strings.Repeat(fmt.Sprintf("w%03d ", n), firstWords))}}
		if named {
			s.header = map[string]string{"X-Session-Id": fmt.Sprint("s", f.crowds)}
		}
		c.sessions = append(c.sessions, s)
	}
	return c
}

// fork is a session that goes on where another one is, with other words.
func (c *crowd) fork(s *session, k kin) *session {
	n := s.random.Uint32()
	fork := &session{number: s.number, random: rand.New(rand.NewPCG(uint64(n), 7)), lives: s.lives, parent: true, history: slices.Clone(s.history)}
	last := &fork.history[len(fork.history)-1]
	last.Content = fmt.Sprint("another way ", n, strings.Repeat(" x", 100))
	if k == named || k == child {
		fork.header = map[string]string{"X-Session-Id": fmt.Sprint("fork-", c.f.forks.Add(1))}
	}
	if k == child {
		fork.header["X-Parent-Session-Id"] = s.header["X-Session-Id"]
	}
	return fork
}

// turn is one turn of a session. Turns that a proxy sent elsewhere on purpose are counted apart.
func (c *crowd) turn(s *session) {
	ctx, cancel := context.WithTimeout(c.f.t.Context(), patience)
	defer cancel()
	w := c.f.any(s.random, c.among)
	a, err := e2e.Client{Base: w.URL}.Ask(ctx, "/v1/chat/completions", e2e.Body{"model": "m", "messages": s.history}, s.header)
	first := s.parent
	c.turns.Add(1)
	if first {
		c.forked.Add(1)
	}
	if err != nil || a.Status != 200 {
		c.errors.Add(1) // its proxy went away under it; a client would ask again
		return
	}
	reason := a.Header.Get("x-warmring-reason")
	if s.lives != "" && a.Engine() != s.lives {
		what := "stray"
		switch {
		case c.f.mayLeave(s.lives) || !first && reason == "moved":
			c.moves.Add(1)
			what = "moved"
		case first && warm(a.Header.Get("x-warmring-warm")):
			c.elsewhere.Add(1) // where its parent has been before, too
			what = "moved"
		case first:
			c.astray.Add(1)
			what = "fork"
		default:
			c.strays.Add(1)
		}
		if what != "moved" {
			c.f.t.Logf("%s %d %v: through %s on %s (%s, warm %s), it lives on %s since its turn %s", what, s.number, s.header, w.Name, a.Engine(), reason, a.Header.Get("x-warmring-warm"), s.lives, s.path)
		}
	}
	s.lives, s.last, s.parent = a.Engine(), w, false
	s.path = tail(s.path+fmt.Sprintf(" %s→%s:%s", strings.TrimPrefix(w.Name, "proxy-"), a.Engine(), reason), 80)
	s.history = append(s.history, e2e.Message{Role: "assistant", Content: "done " + strings.Repeat("a ", 50)}, e2e.Message{Role: "user", Content: fmt.Sprint("next ", len(s.history), strings.Repeat(" n", 100))})
}

// tail is the end of a text.
func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// warm tells whether most of a prompt is predicted to be cached, by the header that says so.
func warm(header string) bool {
	var warm, all int
	_, err := fmt.Sscanf(header, "%d/%d", &warm, &all)
	return err == nil && 4*warm > 3*all
}

// once lets each session take a turn.
func (c *crowd) once() {
	together := c.together
	if together == 0 {
		together = len(c.sessions)
	}
	for some := range slices.Chunk(c.sessions, max(together, 1)) {
		var group sync.WaitGroup
		for _, s := range some {
			group.Go(func() { c.turn(s) })
		}
		group.Wait()
	}
}

// round is once, and waits until all proxies have heard of all of them.
func (c *crowd) round() time.Duration {
	c.f.t.Helper()
	c.once()
	return c.f.settle()
}

// race lets sessions take turns one after another, with a short pause, until done is closed. Their next turns and the news of the
// last ones race, and who wins depends on the machine.
func (c *crowd) race(done <-chan struct{}, pause time.Duration) (wait func()) {
	var group sync.WaitGroup
	for _, s := range c.sessions {
		group.Go(func() {
			for {
				c.turn(s)
				if c.forks != none && s.random.IntN(4) == 0 {
					fork := c.fork(s, c.forks)
					c.turn(fork)
					c.turn(fork)
				}
				select {
				case <-done:
					return
				case <-time.After(time.Duration(s.random.Int64N(int64(pause)))):
				}
			}
		})
	}
	return group.Wait
}

// during plays a race for as long as something happens.
func (c *crowd) during(pause time.Duration, what func()) {
	done := make(chan struct{})
	wait := c.race(done, pause)
	defer wait() // also where what gives up
	defer close(done)
	what()
}

// tally is what came of turns.
type tally struct{ turns, strays, moves, errors, forked, astray int64 }

// tell prints what came of the turns since the last telling, and forgets it.
func (c *crowd) tell(what string) tally {
	t := tally{c.turns.Swap(0), c.strays.Swap(0), c.moves.Swap(0), c.errors.Swap(0), c.forked.Swap(0), c.astray.Swap(0)}
	forks := ""
	if t.forked > 0 {
		forks = fmt.Sprintf("; of %d forks %d began cold on another than their parent's (%.2f %%), %d warm", t.forked, t.astray, 100*float64(t.astray)/float64(t.forked), c.elsewhere.Swap(0))
	}
	c.f.t.Logf("%s: %d turns, %d not on their session's engine (%.2f %%), %d moved on purpose, %d errors%s", what, t.turns, t.strays, 100*float64(t.strays)/float64(max(t.turns, 1)), t.moves, t.errors, forks)
	return t
}

// raced judges turns that raced with the news. at most: so many errors.
func (c *crowd) raced(what string, atMost int) {
	c.f.t.Helper()
	t := c.tell(what)
	if t.errors > int64(atMost) {
		c.f.t.Errorf("%s: %d errors", what, t.errors)
	}
	if figures && (float64(t.strays) > 0.001*float64(t.turns) || float64(t.astray) > 0.01*float64(t.forked)) {
		c.f.t.Errorf("%s: %d of %d turns were not on their session's engine, %d of %d forks not on their parent's", what, t.strays, t.turns, t.astray, t.forked)
	}
}

// judge wants turns of sessions that were known, where nothing raced: all stay.
func (c *crowd) judge(what string) {
	c.f.t.Helper()
	if t := c.tell(what); t.errors > 0 || float64(t.strays) > 0.001*float64(t.turns) {
		c.f.t.Errorf("%s: of %d turns %d were not on their session's engine, and %d failed", what, t.turns, t.strays, t.errors)
	}
}

// heard plays rounds and judges them: whoever has heard of a session sends it to its engine.
func (c *crowd) heard(what string, rounds int) {
	c.f.t.Helper()
	c.f.settle()
	slowest := time.Duration(0)
	for range rounds {
		slowest = max(slowest, c.round())
	}
	t := c.tell(fmt.Sprintf("%s (all had heard after %v at most)", what, slowest.Round(100*time.Microsecond)))
	if t.errors > 0 || float64(t.strays) > 0.001*float64(t.turns) {
		c.f.t.Errorf("%s: of %d turns %d were not on their session's engine, and %d failed", what, t.turns, t.strays, t.errors)
	}
	if float64(t.moves) > 0.05*float64(t.turns) && !c.f.mayMove() {
		c.f.t.Errorf("%s: of %d turns %d moved without need", what, t.turns, t.moves)
	}
}

// forked1 is a crowd of forks, one of each session.
func (c *crowd) forked1(k kin) *crowd {
	forks := &crowd{f: c.f, named: c.named, among: c.among}
	for _, s := range c.sessions {
		forks.sessions = append(forks.sessions, c.fork(s, k))
	}
	return forks
}
