package ring

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/ring/prompt"
)

// A session takes one turn after another at any proxy, and moves now and then, as an engine fails. The news of its bindings and
// milestones arrives in any order, late, or with the next comparison only; an answer's end may be noticed only after the next turn has
// begun elsewhere. However that goes, once all have heard of everything, all hold it for one session in one place: it is never taken
// for two histories under one id for good (C094).
func TestASessionIsNeverSplitByTheOrderOfItsNews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "proxies")
		ps := newPeers(t, n, func(int) int64 { return 0 }, fleet(8, 20_000_000))
		c := begin(1, rapid.SampledFrom([]int{0, 20_000}).Draw(t, "head"), 5, rapid.SampledFrom([]int{300, 3000, 20_000}).Draw(t, "first"))
		at := ""
		var open []*Charge
		answer := func(left int) {
			for len(open) > left {
				open[0].Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
				open = open[1:]
			}
		}
		turn := func(i int, fails bool) Decision {
			for _, ch := range open {
				ch.FirstToken(ps.now) // who has not begun to answer cannot have been answered
			}
			answer(1)
			turn := Turn{Now: ps.now, Session: 7, Prompt: c.prompt()}
			if fails && at != "" {
				turn.Exclude = []string{at}
			}
			var d Decision
			ch, err := ps.all[i].Place(&turn, &d)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, ch)
			at = d.Engine
			ps.collect(i)
			return d
		}
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			ps.now += int64(time.Duration(rapid.IntRange(1, 1500).Draw(t, "pause")) * time.Millisecond)
			turn(rapid.IntRange(0, n-1).Draw(t, "proxy"), rapid.IntRange(0, 2).Draw(t, "fails") == 0)
			if rapid.IntRange(0, 2).Draw(t, "noticed late") > 0 {
				answer(0)
			}
			for range rapid.IntRange(0, len(ps.flying)).Draw(t, "arriving") { // in any order
				at := rapid.IntRange(0, len(ps.flying)-1).Draw(t, "which")
				f := ps.flying[at]
				ps.flying = slices.Delete(ps.flying, at, at+1)
				lost := 8 // one in so many
				if f.entry.Tail {
					lost = 2 // milestones are the first to be shed
				}
				if rapid.IntRange(1, lost).Draw(t, "lost") < lost {
					ps.deliver(f.to, f.entry)
				}
			}
			c.say(rapid.Uint64().Draw(t, "says"), rapid.IntRange(100, 40_000).Draw(t, "bytes"))
		}
		answer(0)
		compare := func() {
			ps.flying = nil
			for from := range n {
				for to := range n {
					if from != to {
						ps.pull(from, to)
					}
				}
			}
		}
		var was Decision
		for k := range 3 * n {
			compare()
			compare()
			ps.now += int64(time.Second)
			c.say(uint64(1000+k), 2000)
			d := turn(k%n, false)
			answer(0)
			if k > 0 && (d.Engine != was.Engine || d.Session != was.Session) {
				for i, p := range ps.all {
					t.Logf("%d: %+v", i, p.sessions.all.at(max(p.sessions.find(7), 0)))
				}
				t.Fatalf("turn %d at proxy %d: session %x on %s (%s), the last turn was %x on %s", k, k%n, d.Session, d.Engine, d.Reason, was.Session, was.Engine)
			}
			was = d
		}
	})
}

// What looks like two histories under one id and is not: each time another proxy's word comes while the session's first turn here is not
// noticed to have ended, and the milestones that would show that it is the same history are lost. The session goes where that word says.
func TestOneHistoryIsNotTakenForTwo(t *testing.T) {
	for story, s := range map[string]struct {
		earlier  bool // the session's first turn was at the other proxy, which is heard of late
		answered bool // the client has had its answer, and goes on elsewhere, before this proxy sees that it has ended
	}{
		"it moved, and this proxy has not seen the end of the answer before": {answered: true},
		"it began elsewhere, which is heard of late":                         {earlier: true},
	} {
		t.Run(story, func(t *testing.T) {
			ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 20_000_000))
			ps.lost = func(b Binding) bool { return b.Tail }
			here, there := ps.all[0], ps.all[1]
			c := begin(1, 20_000, 5, 3000)
			here.now, there.now = ps.now, ps.now
			var ch, other *Charge
			begins := func() { ch, _ = here.start(7, c, others(4, "e0")...) }
			if s.earlier {
				other, _ = there.start(7, c, others(4, "e1")...)
				c.say(1, 9000)
				begins()
			} else {
				begins()
				if s.answered {
					ch.FirstToken(ps.now)
					c.say(1, 9000)
				}
				other, _ = there.start(7, c, others(4, "e1")...)
			}
			var told []Binding
			bindings, _ := there.Collect(nil, nil)
			for _, b := range bindings {
				if !b.Tail {
					told = append(told, b)
				}
			}
			here.Collect(nil, nil) // its own word is the older one
			here.Import(ps.now, told)
			for _, open := range []*Charge{ch, other} {
				open.FirstToken(ps.now)
				open.Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
			}
			for n := range uint64(3) {
				here.now += int64(time.Second)
				next, d := here.start(7, c.say(10+n, 2000))
				if d.Engine != "e1" || d.Session != 7 {
					t.Fatalf("turn %d is one of session %x on %s (%s), 7 lives on e1", n, d.Session, d.Engine, d.Reason)
				}
				next.FirstToken(here.now)
				next.Release(here.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
			}
		})
	}
}

// What a turn would cost in a wrong place is its history, but not the head that all sessions share.
func TestAColdTurnIsItsPromptWithoutTheHead(t *testing.T) {
	p := New(Options{DefaultBytesPerToken: 4})
	for _, c := range []struct {
		prompt *prompt.Prompt
		tokens int
	}{
		{nil, 0},
		{begin(0, 0, 1, 4000).prompt(), 1000},
		{begin(1, 40_000, 1, 4000).say(2, 4000).prompt(), 2000},
	} {
		tokens := p.Cold(&Turn{Prompt: c.prompt})
		if d := tokens - c.tokens; d < -20 || d > 20 {
			t.Errorf("%d tokens, not %d", tokens, c.tokens)
		}
	}
}
