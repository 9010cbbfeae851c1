package ring

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// C063, C087: whatever happens in whatever order, every charge is given back once and all gauges end at 0; sessions, index
// and engines that come and go included.
func TestChargesAlwaysComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Options{MaxSessions: 8, MaxIndexTokens: 50_000, SessionIdle: time.Hour}, fleet(4, 30_000))
		var flight, done []*Charge
		talks := []*talk{begin(1, 9000, 1, 500)}
		rt.Repeat(map[string]func(*rapid.T){
			"place": func(rt *rapid.T) {
				c := rapid.SampledFrom(talks).Draw(rt, "talk").fork()
				if rapid.Bool().Draw(rt, "grow") {
					c.say(rapid.Uint64Range(1, 4).Draw(rt, "message"), rapid.IntRange(1, 20_000).Draw(rt, "bytes"))
				}
				if len(talks) < 20 {
					talks = append(talks, c)
				}
				turn := Turn{Now: w.now, Session: rapid.Uint64Range(0, 6).Draw(rt, "session"), Parent: rapid.Uint64Range(0, 3).Draw(rt, "parent"),
					Seed: rapid.Uint64Range(0, 1).Draw(rt, "seed"), Continues: rapid.IntRange(0, 5).Draw(rt, "continues") == 0}
				if rapid.IntRange(0, 5).Draw(rt, "blind") > 0 {
					turn.Prompt = c.prompt()
				}
				for _, name := range []string{"e0", "e1", "gone"} {
					if rapid.IntRange(0, 6).Draw(rt, "tried") == 0 {
						turn.Exclude = append(turn.Exclude, name)
					}
				}
				var d Decision
				ch, err := w.Place(&turn, &d)
				if err == nil {
					flight = append(flight, ch)
				}
			},
			"first token": func(rt *rapid.T) {
				if len(flight) > 0 {
					rapid.SampledFrom(flight).Draw(rt, "charge").FirstToken(w.now)
				}
			},
			"restart": func(rt *rapid.T) {
				if len(flight) > 0 {
					rapid.SampledFrom(flight).Draw(rt, "charge").Restart(w.now)
				}
			},
			"progress": func(rt *rapid.T) {
				if len(flight) > 0 {
					rapid.SampledFrom(flight).Draw(rt, "charge").Progress(w.now, rapid.IntRange(0, 20_000).Draw(rt, "held"))
				}
			},
			"release": func(rt *rapid.T) {
				if len(flight) == 0 {
					return
				}
				i := rapid.IntRange(0, len(flight)-1).Draw(rt, "which")
				ch := flight[i]
				flight = append(flight[:i], flight[i+1:]...)
				done = append(done, ch)
				o := Outcome{PromptTokens: rapid.IntRange(-1, 20_000).Draw(rt, "prompt"), CachedTokens: rapid.IntRange(-1, 20_000).Draw(rt, "cached"),
					OutputTokens: rapid.IntRange(-1, 900).Draw(rt, "output"), Failed: rapid.Bool().Draw(rt, "failed")}
				if !ch.Release(w.now, o) {
					rt.Fatal("the first release was refused")
				}
			},
			"again": func(rt *rapid.T) {
				if len(done) > 0 {
					ch := rapid.SampledFrom(done).Draw(rt, "charge")
					ch.FirstToken(w.now)
					if ch.Release(w.now, Outcome{}) {
						rt.Fatal("released twice")
					}
				}
			},
			"time": func(rt *rapid.T) { w.now += int64(rapid.IntRange(0, 5000).Draw(rt, "seconds")) * 1e9 },
			"engines": func(rt *rapid.T) {
				engines := fleet(5, 30_000)
				for i := range engines {
					engines[i].State = State(rapid.IntRange(0, 4).Draw(rt, "state"))
				}
				n := rapid.IntRange(0, 5).Draw(rt, "from")
				w.SetEngines(w.now, engines[n:])
			},
			"forget": func(rt *rapid.T) { w.Forget(w.now, "e2") },
			"": func(rt *rapid.T) {
				if err := w.Placer.recount(); err != nil {
					rt.Fatal(err)
				}
				if g := w.Gauges(); g.Sessions > 8 || g.IndexTokens > 50_000 {
					rt.Fatalf("over the bounds: %+v", g)
				}
			},
		})
		for _, ch := range flight {
			ch.Release(w.now, Outcome{})
		}
		if g := w.Gauges(); g.Waiting != 0 || g.Queued != 0 || g.Running != 0 || g.Held != 0 {
			rt.Fatalf("still charged at the end: %+v", g)
		}
		w.now += int64(10 * time.Hour)
		for range 10 {
			w.Forget(w.now, "")
		}
		if g := w.Gauges(); g.Context != 0 || g.Sessions != 0 || g.SharedHeads != 0 {
			rt.Fatalf("remembered for ever: %+v", g)
		}
	})
}

// Many at once, each released by two goroutines: one of them wins. For the race detector too.
func TestConcurrentTurns(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 1_000_000))
	var wg sync.WaitGroup
	var mu sync.Mutex
	wins := 0
	for g := range 8 {
		wg.Go(func() {
			c := begin(1, 9000, uint64(g), 500)
			for n := range 50 {
				var d Decision
				ch, err := w.Place(&Turn{Now: int64(n), Session: uint64(g % 3), Prompt: c.prompt()}, &d)
				if err != nil {
					t.Error(err)
					return
				}
				c.say(uint64(n), 900)
				var pair sync.WaitGroup
				for range 2 {
					pair.Go(func() {
						ch.FirstToken(int64(n) + 5)
						if ch.Release(int64(n)+9, Outcome{PromptTokens: 4000, CachedTokens: 100}) {
							mu.Lock()
							wins++
							mu.Unlock()
						}
					})
				}
				pair.Wait()
				if n%10 == 0 {
					w.Snapshot()
					w.Sessions(5)
					w.SetEngines(int64(n), fleet(3+n/10%2, 1_000_000))
				}
			}
		})
	}
	wg.Wait()
	if wins != 400 {
		t.Errorf("%d releases of 400 charges", wins)
	}
	w.settled()
}
