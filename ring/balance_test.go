package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSessionsWithoutIdsThatShareASystemPrompt(t *testing.T) {
	for _, engines := range []int{2, 4, 8} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d engines, together %v", engines, together), func(t *testing.T) {
				w := newWorld(t, Options{}, fleet(engines, 1_000_000))
				const sessions, turns = 64, 10
				var talks [sessions]*talk
				for i := range talks {
					talks[i] = begin(7, 55_000, uint64(100+i), 400)
				}
				where := map[int]string{}
				load := map[string]int{}
				check := func(i int, d Decision) {
					if old, ok := where[i]; ok && old != d.Engine {
						t.Errorf("session %d moved from %s to %s (%s)", i, old, d.Engine, d.Reason)
					}
					if want := talks[i].first; where[i] != "" && (!d.Extends || d.Turn < 2) && want > 0 {
						t.Errorf("session %d: a later turn was not recognised: %+v", i, d)
					}
					where[i] = d.Engine
					load[d.Engine]++
				}
				grow := func(i, n int) { talks[i].say(uint64(i*1000+n), 1200).say(uint64(n), 3000) }
				if together {
					for n := range turns {
						var flight []*Charge
						for i := range talks {
							ch, d := w.start(0, talks[i])
							w.sleep(2 * time.Millisecond)
							check(i, d)
							flight = append(flight, ch)
							grow(i, n)
						}
						for _, ch := range flight {
							ch.FirstToken(w.now)
							ch.Release(w.now, Outcome{CachedTokens: -1})
						}
						w.sleep(5 * time.Second)
					}
				} else {
					for i := range talks {
						for n := range turns {
							check(i, w.turn(0, talks[i]))
							grow(i, n)
						}
					}
				}
				balanced(t, load, engines, 1.25)
				if g := w.Gauges(); g.Sessions != sessions {
					t.Errorf("%d sessions known, want %d", g.Sessions, sessions)
				}
				w.settled()
			})
		}
	}
}

func balanced(t *testing.T, load map[string]int, engines int, limit float64) {
	t.Helper()
	most, sum := 0, 0
	for _, n := range load {
		most, sum = max(most, n), sum+n
	}
	if ratio := float64(most) * float64(engines) / float64(sum); ratio > limit {
		t.Errorf("max/mean load %.2f, want at most %.2f: %v", ratio, limit, load)
	} else {
		t.Logf("max/mean load %.2f", ratio)
	}
}

func TestNewPromptsAvoidTheBusyEngine(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 10_000_000))
	for i := range 500 {
		ch, _ := w.place(&Turn{Exclude: []string{"e0"}, Prompt: begin(0, 0, uint64(i)+1, 4000).prompt()})
		ch.Release(w.now, Outcome{})
	}
	w.sleep(40 * time.Minute)
	for range 40 {
		ch, _ := w.place(&Turn{Exclude: []string{"e1"}, Prompt: begin(0, 0, 7777, 4000).prompt()})
		ch.FirstToken(w.now)
	}
	for i := range 20 {
		if ch, d := w.start(0, begin(0, 0, uint64(i)+9000, 4000)); d.Engine != "e1" {
			t.Errorf("new prompt %d went to the busy engine: %+v", i, d)
		} else {
			w.finish(ch)
		}
	}
}

func TestBurstOfLongPromptsSpreads(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	load := map[string]int{}
	for i := range 40 {
		_, d := w.start(uint64(1000+i), begin(0, 0, uint64(i), 115_000))
		load[d.Engine]++
		w.sleep(5 * time.Millisecond)
	}
	for name, n := range load {
		if n < 8 || n > 12 {
			t.Errorf("%s got %d of 40", name, n)
		}
	}
}

func TestWithoutPromptByLoad(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	load := map[string]int{}
	for range 40 {
		ch, d := w.start(0, nil)
		load[d.Engine]++
		defer ch.Release(w.now, Outcome{})
	}
	balanced(t, load, 4, 1.5)
	if d := w.turn(8, nil); d.Session != 8 || w.turn(8, nil).Engine != d.Engine {
		t.Error("a session without a prompt is bound all the same")
	}
}

func TestDistributionDoesNotDrift(t *testing.T) {
	w := newWorld(t, Options{}, fleet(10, 2_000_000))
	random := rand.New(rand.NewPCG(1, 2))
	load := map[string]int{}
	var flight []*Charge
	for i := range 20_000 {
		if i == 10_000 {
			balanced(t, load, 10, 1.25)
			clear(load)
		}
		ch, d := w.start(0, begin(3, 8000, uint64(i)+1000, 2000))
		load[d.Engine]++
		flight = append(flight, ch)
		w.sleep(20 * time.Millisecond)
		for len(flight) > 30 {
			at := random.IntN(len(flight))
			ch := flight[at]
			flight = append(flight[:at], flight[at+1:]...)
			switch random.IntN(20) {
			case 0:
				ch.Release(w.now, Outcome{CachedTokens: -1}) // cancelled in prefill
			case 1:
				ch.Release(w.now, Outcome{Failed: true})
			default:
				ch.FirstToken(w.now)
				ch.Release(w.now, Outcome{CachedTokens: -1, Prefilled: true})
			}
		}
	}
	balanced(t, load, 10, 1.25)
	for _, ch := range flight {
		ch.Release(w.now, Outcome{})
	}
	w.settled()
}

func TestNewEngineGetsItsShare(t *testing.T) {
	w := newWorld(t, Options{}, fleet(7, 4_000_000))
	var talks []*talk
	for i := range 70 {
		talks = append(talks, begin(3, 54_000, uint64(i), 20_000))
		w.turn(uint64(1000+i), talks[i])
	}
	w.SetEngines(w.now, fleet(8, 4_000_000))
	load := map[string]int{}
	for i := range 80 {
		load[w.turn(uint64(5000+i), begin(3, 54_000, uint64(500+i), 20_000)).Engine]++
		if i < 70 {
			if d := w.turn(uint64(1000+i), talks[i].say(1, 500)); d.Reason != Bound {
				t.Errorf("an old session moved: %+v", d)
			}
		}
	}
	if load["e7"] < 8 {
		t.Errorf("the new engine got %d of 80 sessions: %v", load["e7"], load)
	}
}

// The load generator that the peers were measured with: 64 sessions by 16 clients, each body 55 to 235 KB of which 40 KB are shared,
// engines that answer in 20 ms and always report the same usage. Sessions are counted, not turns.
func TestSixtyFourSessionsOfTheLoadGenerator(t *testing.T) {
	for _, engines := range []int{2, 8} {
		for _, shared := range []bool{true, false} {
			for _, ids := range []bool{true, false} {
				w := newWorld(t, Options{}, fleet(engines, 0))
				var talks [64]*talk
				for i := range talks {
					head := uint64(7)
					if !shared {
						head += uint64(i)
					}
					talks[i] = begin(head, 40_000, uint64(100+i), 15_000)
				}
				load, where := map[string]int{}, map[int]string{}
				for n := range 10 * len(talks) / 16 {
					var flight []*Charge
					for client := range 16 {
						i := client + 16*(n/10) // a session after the other
						id := uint64(0)
						if ids {
							id = uint64(i + 1)
						}
						ch, d := w.start(id, talks[i])
						flight = append(flight, ch)
						if where[i] == "" {
							where[i] = d.Engine
							load[d.Engine]++
						} else if where[i] != d.Engine || d.Reason != Bound {
							t.Errorf("session %d left %s: %+v", i, where[i], d)
						}
						talks[i].say(uint64(1000*i+n), 20_000)
						w.sleep(time.Millisecond)
					}
					w.sleep(5 * time.Millisecond)
					for _, ch := range flight {
						ch.FirstToken(w.now)
						ch.Release(w.now, Outcome{PromptTokens: 50_000, CachedTokens: 49_000, OutputTokens: 20, Prefilled: true})
					}
				}
				t.Logf("%d engines, shared system prompt %v, ids %v", engines, shared, ids)
				balanced(t, load, engines, 1.25)
				w.settled()
			}
		}
	}
}

// C086: 200 sessions share a 6,000-token system prompt, 40 turns at a time: no engine has much more than its share in flight, the
// head is soon on all engines, and sessions stay.
func TestHotPrefixIsReplicated(t *testing.T) {
	const engines, sessions, atOnce = 4, 200, 40
	w := newWorld(t, Options{}, fleet(engines, 2_000_000))
	random := rand.New(rand.NewPCG(5, 6))
	type turn struct {
		ch      *Charge
		session int
	}
	var talks [sessions]*talk
	var flight []turn
	busy := map[int]bool{}
	where := map[int]string{}
	most, sum := 0.0, 0.0
	for n := range 4000 {
		i := random.IntN(sessions)
		for busy[i] {
			i = random.IntN(sessions)
		}
		if talks[i] == nil {
			talks[i] = begin(7, 22_000, uint64(1000+i), 3000)
		}
		ch, d := w.start(0, talks[i].say(uint64(n), 1500))
		if where[i] != "" && where[i] != d.Engine {
			t.Errorf("session %d left %s: %+v", i, where[i], d)
		}
		where[i], busy[i] = d.Engine, true
		flight = append(flight, turn{ch, i})
		w.sleep(50 * time.Millisecond)
		if len(flight) < atOnce {
			continue
		}
		if n > 400 {
			highest := 0
			for _, v := range w.Snapshot() {
				highest = max(highest, v.Queued+v.Running)
			}
			most += float64(highest)
			sum += float64(atOnce) / engines
		}
		at := random.IntN(len(flight))
		done := flight[at]
		flight = append(flight[:at], flight[at+1:]...)
		done.ch.FirstToken(w.now)
		done.ch.Release(w.now, Outcome{CachedTokens: -1, Prefilled: true})
		delete(busy, done.session)
	}
	if ratio := most / sum; ratio > 1.5 {
		t.Errorf("the busiest engine has %.2f times the mean in flight", ratio)
	} else {
		t.Logf("the busiest engine has %.2f times the mean in flight", ratio)
	}
	if c := w.index.copies(talks[0].chain[talks[0].head-1].Fingerprint); c != engines {
		t.Errorf("the head is on %d engines", c)
	}
	for _, f := range flight {
		f.ch.Release(w.now, Outcome{})
	}
	w.settled()
}
