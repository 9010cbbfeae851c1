package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// caches is what engines really hold: all that was ever sent to them.
type caches map[string]map[uint64]int

// serve returns how many of a prompt's bytes an engine had, and gives it the rest.
func (c caches) serve(engine string, t *talk) (warm int) {
	if c[engine] == nil {
		c[engine] = map[uint64]int{}
	}
	for _, point := range t.chain {
		if _, ok := c[engine][point.Fingerprint]; ok {
			warm = int(point.Bytes)
		}
	}
	for _, point := range t.chain {
		c[engine][point.Fingerprint] = 1
	}
	return warm
}

// A client gives its sub-agents, or a new conversation, the id of the session they came from. Both histories go on by turns at any
// proxy, and each is found where it is warm: whichever proxies get the turns, as much is computed anew as with a single proxy, nearly.
func TestHistoriesUnderOneIdStayWarmAtAnyProxy(t *testing.T) {
	run := func(count int, seed uint64) (computed, strays int) {
		ps := newProxies(t, count, 5*time.Millisecond, Options{}, fleet(8, 20_000_000))
		random := rand.New(rand.NewPCG(seed, 3))
		real := caches{}
		at := map[string]string{}
		for s := range uint64(20) {
			histories := []*talk{begin(1, 30_000, s*10, 3000).say(1, 90_000)}
			for turn := range 24 {
				if turn == 4 {
					histories = append(histories, begin(2, 40_000, s*10+1, 4000)) // a sub-agent: other tools, other task
				}
				if turn == 14 {
					histories[0] = begin(1, 30_000, s*10+2, 20_000) // the main history is compacted
				}
				h := random.IntN(len(histories))
				c := histories[h].say(uint64(turn), 500+random.IntN(20_000))
				w := ps.all[random.IntN(count)]
				w.now = ps.now
				ch, d := w.start(s+1, c)
				ps.finish(ch)
				ps.sleep(20 * time.Millisecond)
				computed += c.bytes - real.serve(d.Engine, c)
				name := fmt.Sprint(s, h, len(histories), turn >= 14 && h == 0)
				if was := at[name]; was != "" && was != d.Engine && d.Reason != Moved {
					strays++
				}
				at[name] = d.Engine
			}
		}
		ps.check()
		return computed, strays
	}
	var alone, three, strays, few int
	for seed := range uint64(3) {
		c, s := run(1, seed)
		alone, few = alone+c, few+s
		c, s = run(3, seed)
		three, strays = three+c, strays+s
	}
	t.Logf("%d KB computed by one proxy's choice, %d KB by that of three; %d and %d turns away from their history", alone>>10, three>>10, few, strays)
	if three*10 > alone*11 || strays > 1440/100 {
		t.Errorf("%d KB computed anew, %d with one proxy; %d turns away from their history", three>>10, alone>>10, strays)
	}
}

// Sub-agents are sent at once, under one id, to several proxies, none of which has heard of the others yet (C101). Each proxy takes another one for
// the session itself; when the news has crossed, each history is still found where it is warm.
func TestHistoriesThatBeganAtOnceUnderOneIdAreKeptApart(t *testing.T) {
	turns, strays, computed, said := 0, 0, 0, 0
	for seed := range uint64(40) {
		ps := newProxies(t, 3, 5*time.Millisecond, Options{}, fleet(8, 20_000_000))
		random := rand.New(rand.NewPCG(seed, 9))
		real := caches{}
		at := map[int]string{}
		var histories []*talk
		var flight []*Charge
		for h := range 3 {
			histories = append(histories, begin(uint64(h), 30_000, seed*10+uint64(h), 8000))
		}
		turn := func(h, proxy int, exclude ...string) {
			c := histories[h]
			w := ps.all[proxy]
			w.now = ps.now
			ch, d := w.start(seed+1, c, exclude...)
			flight = append(flight, ch)
			computed += c.bytes - real.serve(d.Engine, c)
			if was := at[h]; was != "" {
				if turns++; was != d.Engine && d.Reason != Moved {
					strays++
				}
			}
			at[h] = d.Engine
		}
		for h := range histories {
			turn(h, h, others(8, fmt.Sprint("e", h))...) // each knows another engine to be free
			said += histories[h].bytes
		}
		for n := range uint64(20) {
			ps.sleep(20 * time.Millisecond)
			for _, ch := range flight {
				ps.finish(ch)
			}
			flight = flight[:0]
			h, more := random.IntN(3), 500+random.IntN(8000)
			histories[h].say(n, more)
			said += more
			turn(h, random.IntN(3))
		}
		ps.check()
	}
	t.Logf("%d of %d turns away from their history; %d KB computed, %d KB were new", strays, turns, computed>>10, said>>10)
	if strays*100 > turns || computed*100 > said*102 {
		t.Errorf("%d of %d turns away from their history; %d KB computed, %d KB were new", strays, turns, computed>>10, said>>10)
	}
}

// A session that moves is followed although the milestones of the move are lost: they are the first to be shed.
func TestAMoveIsFollowedWithoutItsMilestones(t *testing.T) {
	ps := newProxies(t, 3, 5*time.Millisecond, Options{}, fleet(8, 20_000_000))
	ps.lost = func(b Binding) bool { return b.Tail }
	c := begin(1, 30_000, 5, 8000)
	at := ""
	for n := range uint64(30) {
		w := ps.all[n%3]
		w.now = ps.now
		var exclude []string
		if n%5 == 4 {
			exclude = []string{at} // it fails there
		}
		ch, d := w.start(7, c.say(n, 3000), exclude...)
		if at != "" && exclude == nil && d.Engine != at {
			t.Errorf("turn %d: %s (%s), it lives on %s", n, d.Engine, d.Reason, at)
		}
		at = d.Engine
		ps.finish(ch)
		ps.sleep(20 * time.Millisecond)
	}
	ps.check()
}
