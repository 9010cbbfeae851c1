package gossip

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// What a member plans to send among 30 and among 300, second by second on a virtual clock, at ten times the moves to be expected, with few and with
// many engines at work, each read far more often than in life: it is what the budget leaves to it, whatever the machine does. What the budget
// keeps back covers the library's probes and answers.
func TestWhatAMemberPlansToSendStaysWithinItsShare(t *testing.T) {
	const budget = 30_000 // the default
	for _, n := range []int{3, 30, 300} {
		for _, busy := range []int{20, 200} {
			t.Run(fmt.Sprintf("members=%d/busy=%d", n, busy), func(t *testing.T) {
				names, placer := engineNames(512), newPlacer(engineNames(512))
				now := int64(time.Hour)
				c, err := create(Options{
					Node: "p", Bind: "127.0.0.1:0", Engines: names, Placer: placer, Now: func() int64 { return now },
					Wall: func() time.Time { return time.Unix(1_800_000_000, now) },
				})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.list.Shutdown() }()
				defer c.stop()
				nobody := uint16(1) // what is sent there is refused
				for i := range n - 1 {
					c.members.add(&memberlist.Node{Name: fmt.Sprint("other-", i), Addr: net.IPv4(127, 0, 0, 1), Port: nobody, Meta: c.ownMeta().bytes(), PMax: 5})
				}
				place := func(session uint64, bytes int, exclude []string) *ring.Charge {
					var d ring.Decision
					ch, err := placer.Place(&ring.Turn{Now: now, Session: session, Prompt: promptOf(session, bytes), Exclude: exclude}, &d)
					if err != nil {
						t.Fatal(err)
					}
					return ch
				}
				var prefills []*ring.Charge
				for i := range uint64(busy) {
					prefills = append(prefills, place(i+1, 100_000, nil))
				}
				const tick = 50 * time.Millisecond // the library's gossip interval
				spent, other, least := uint64(0), uint64(0), budget
				const warmUp, during = 10 * time.Second, 60 * time.Second
				for at := time.Duration(0); at < warmUp+during; at += tick {
					now += int64(tick)
					if at == warmUp {
						spent = c.budget.view().Spent
					}
					for range max(10*n/2/int(time.Second/tick), 1) { // placements of the whole cluster in this time
						other++
						key := other * 0x9e3779b97f4a7c15
						if other%uint64(n) == 0 { // ours, a prefill that ends and another that begins
							i := other / uint64(n) % uint64(busy)
							prefills[i].Release(now, ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
							prefills[i] = place(key, 100_000, nil)
							continue
						}
						c.merge(now, []Entry{{Key: key, Value: ring.EngineID("e7"), Version: 1, Node: 7, Kind: Session, Size: uint8(other % 60), Life: time.Hour}}, relay)
					}
					for i := range 8 {
						c.Read(names[(int(other)+i)%len(names)], Digest{Running: 1, Waiting: 2, Usage: 3, KVTokens: 1 << 30, Start: 1 << 30, Work: 1 << 40})
					}
					c.sendNews(now)
					if at%report == 0 {
						c.sendLoads(now, false)
					}
					for range 4 {
						(*delegate)(c).GetBroadcasts(3, 1350)
					}
					least = min(least, c.budget.available(now))
				}
				rate := float64(c.budget.view().Spent-spent) / during.Seconds()
				t.Logf("%.1f KB/s of %d; straight way used %d times", rate/1000, budget/1000, c.counts.quickSent.Load())
				if most := ownShare * budget * (1 + 0.5/during.Seconds()); rate > most {
					t.Errorf("it plans to send %.0f bytes per second, %.0f is its share", rate, most)
				}
				if least > budget/10 {
					t.Errorf("%d bytes per second are left: the test tests nothing", least)
				}
			})
		}
	}
}
