package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/ring/prompt"
)

// way lists the milestones of a prompt.
func way(pr *prompt.Prompt) (points []int) {
	for m := milestonesOf(pr); ; {
		at, _, ok := m.next()
		if !ok {
			return points
		}
		points = append(points, at)
	}
}

// Milestones follow from the prompt alone: a prompt has those of everything that it goes on from, in order, none in the head; and what a
// fork shares with its parent holds one that is not far from the end of it.
func TestMilestonesOfAForkAreThoseOfItsParent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := begin(1, rapid.IntRange(0, 60_000).Draw(t, "head"), 2, rapid.IntRange(1, 20_000).Draw(t, "first"))
		messages := rapid.SliceOfN(rapid.IntRange(1, 30_000), 0, 30).Draw(t, "messages")
		for i, n := range messages {
			c.say(uint64(i), n)
		}
		parent := c.prompt()
		shared := c.fork()
		for i := range rapid.IntRange(0, 20).Draw(t, "more") {
			c.say(uint64(100+i), rapid.IntRange(1, 30_000).Draw(t, "said"))
		}
		fork := shared.say(7, rapid.IntRange(1, 90_000).Draw(t, "own")).prompt()
		later := way(c.prompt())
		mine := way(parent)
		for i, at := range mine {
			if !slices.Contains(later, at) {
				t.Fatalf("point %d is a milestone no more when the session has grown: %v, %v", at, mine, later)
			}
			if at < parent.Head || i > 0 && at >= mine[i-1] {
				t.Fatalf("milestones %v of a prompt with %d points of head", mine, parent.Head)
			}
			if !slices.Contains(way(fork), at) {
				t.Fatalf("the fork lacks its parent's milestone %d: %v, %v", at, mine, way(fork))
			}
		}
		beyond := parent.Bytes
		if parent.Head > 0 {
			beyond -= int(parent.Chain[parent.Head-1].Bytes)
		}
		if beyond < 16_384 {
			return
		}
		deepest := int(parent.Chain[mine[0]].Bytes) - parent.Bytes + beyond
		if deepest*4 < beyond { // half of it, and a kept point of 4 KB
			t.Fatalf("the deepest milestone is at %d of %d bytes", deepest, beyond)
		}
	})
}

func TestALevelReachesTwiceAsFar(t *testing.T) {
	for level := range 20 {
		if got := milestoneLevel(reachOf(level)); got != level {
			t.Errorf("level %d reaches %d bytes, which is level %d", level, reachOf(level), got)
		}
		if got := milestoneLevel(reachOf(level) - 1); got != level-1 {
			t.Errorf("a byte less than level %d is level %d", level, got)
		}
	}
	if n := len(way(&prompt.Prompt{})); n != 0 {
		t.Errorf("an empty prompt has %d milestones", n)
	}
}

// What milestones cost on the wire: about as many entries as sessions themselves, whichever proxies get the turns, a tenth of what a tail with
// every turn would cost, and each worth less than any session where something must be shed.
func TestMilestonesCostAsMuchAsSessions(t *testing.T) {
	const count, sessions, turns = 3, 40, 60
	for _, proxyCount := range []int{1, count} {
		t.Run(fmt.Sprintf("proxies=%d", proxyCount), func(t *testing.T) {
			ps := newProxies(t, proxyCount, 5*time.Millisecond, Options{}, fleet(8, 40_000_000))
			random := rand.New(rand.NewPCG(1, 2))
			told := map[bool]int{}
			most, least := 0, 1<<30
			ps.heard = func(b Binding) {
				told[b.Tail]++
				if b.Tail {
					most = max(most, b.Tokens)
				} else {
					least = min(least, b.Tokens)
				}
			}
			for i := range uint64(sessions) {
				c := begin(i%3, 30_000, i, 3000)
				for n := range uint64(turns) {
					w := ps.all[random.IntN(proxyCount)]
					w.now = ps.now
					ch, _ := w.start(i+1, c.say(n, 1000+random.IntN(14_000)))
					ps.finish(ch)
					ps.sleep(20 * time.Millisecond)
				}
			}
			each := func(n int) float64 { return float64(n) / sessions }
			t.Logf("per session of %d turns, 33 to 500 KB: %.1f entries about itself, %.1f milestones (26 bytes each, %.0f and %.0f); a tail with every turn would be %d",
				turns, each(told[false]), each(told[true]), 26*each(told[false]), 26*each(told[true]), turns)
			if told[true] == 0 || each(told[true]) > 9 {
				t.Errorf("%.1f milestones per session", each(told[true]))
			}
			if most >= least {
				t.Errorf("a milestone is worth as much as %d tokens of context, a session no more than %d", most, least)
			}
		})
	}
}
