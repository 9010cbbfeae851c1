package gossip

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// A member among 300 (the others are a hole that takes packets) sends what its budget allows, at ten times the moves to be
// expected: with 300 proxies, 150 placements a second in the cluster are the rule.
func TestTheBudgetHoldsAmongThreeHundred(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes 11 s, and measures")
	}
	t.Parallel()
	hole, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	for _, n := range []int{30, 300} {
		p := startMember(t, engineNames(512), nil, func(o *Options) {
			o.EngineStates = func() []EngineState { return []EngineState{{"e1", ring.Down}, {"e2", ring.Draining}} }
		})
		for i := range n - 1 {
			p.members.add(&memberlist.Node{Name: fmt.Sprint("other-", i), Addr: net.IPv4(127, 0, 0, 1), Port: uint16(hole.LocalAddr().(*net.UDPAddr).Port), Meta: p.ownMeta().bytes(), PMax: 5})
		}
		var charges []*ring.Charge
		for i := range uint64(20) { // prefills under way on some engines
			var d ring.Decision
			ch, err := p.placer.Place(&ring.Turn{Now: clock(), Session: i + 1, Prompt: promptOf(i, 100_000)}, &d)
			if err != nil {
				t.Fatal(err)
			}
			charges = append(charges, ch)
		}
		time.Sleep(1200 * time.Millisecond) // the first burst is over
		before, began := p.traffic.bytesOut.Load(), time.Now()
		gossiped := 0
		next, other := time.Now(), uint64(1<<40)
		ticker := time.NewTicker(50 * time.Millisecond)
		for time.Since(began) < 4*time.Second {
			<-ticker.C
			for ; time.Now().After(next); next = next.Add(time.Second / time.Duration(10*n/2)) {
				other++
				if other%uint64(n) == 0 { // ours
					p.place(t, other*0x9e3779b97f4a7c15)
					continue
				}
				m := Message{Entries: []Entry{{Key: other * 0x9e3779b97f4a7c15, Value: ring.EngineID("e7"), Version: 1, Node: 7, Kind: Session, Size: uint8(other % 60), Life: time.Hour}}}
				(*delegate)(p.Cluster).NotifyMsg(m.Append(nil))
			}
			p.Read("e5", Digest{Running: 1, Waiting: 2, Usage: 3, KVTokens: 1 << 30, Start: 1 << 30, Work: 1 << 40}) // far more often than in life
			for range 4 {                                                                                            // as the library asks, for four members
				for _, b := range (*delegate)(p.Cluster).GetBroadcasts(3, 1350) {
					gossiped += len(b) + packetCost
				}
			}
		}
		ticker.Stop()
		during := time.Since(began).Seconds()
		rate := float64(int(p.traffic.bytesOut.Load()-before)+gossiped) / during
		v := p.View()
		t.Logf("among %d: %.1f KB/s, of these %.1f by gossip; loads told every %v; shed %d, cut %d, straight way skipped %d", n, rate/1000, float64(gossiped)/during/1000,
			p.interval(200).Round(10*time.Millisecond), v.News.Shed, v.News.Cut, v.Totals.QuickSkipped)
		if rate*during > 30_000*(during+1) { // what was saved in a second may be spent at once
			t.Errorf("among %d it sends %.0f bytes per second", n, rate)
		}
		for _, ch := range charges {
			ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
		}
		p.members.mu.Lock()
		clear(p.members.byName)
		clear(p.members.byID)
		p.members.publish()
		p.members.mu.Unlock()
	}
}
