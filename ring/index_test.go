package ring

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
	"pgregory.net/rapid"
)

func keptOf(c *talk) []prompt.Point {
	var kept []prompt.Point
	for _, p := range c.chain {
		if p.Keep {
			kept = append(kept, p)
		}
	}
	return kept
}

func newIndex(engines int, capacity int64) *index {
	x := &index{}
	x.init(1 << 40)
	for range engines {
		x.caches = append(x.caches, cache{capacity: capacity})
	}
	return x
}

// hold touches a whole chain as a turn on an engine does.
func (x *index) hold(engine int, c *talk, now int64) {
	kept := keptOf(c)
	x.touch(uint16(engine), kept, x.depth(kept, engine, len(kept)/2), now, 4)
}

// model of an index: per engine the fingerprints with the time of their last use; no capacity.
func TestIndexAgainstPlainSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const engines = 3
		x := newIndex(engines, 1<<40)
		sets := [engines]map[uint64]bool{}
		for e := range sets {
			sets[e] = map[uint64]bool{}
		}
		talks := []*talk{begin(1, 9000, 1, 500)}
		now := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"turn": func(t *rapid.T) {
				now++
				c := rapid.SampledFrom(talks).Draw(t, "talk").fork()
				c.say(rapid.Uint64Range(1, 3).Draw(t, "message"), rapid.IntRange(1, 20000).Draw(t, "bytes"))
				e := rapid.IntRange(0, engines-1).Draw(t, "engine")
				if len(talks) < 30 {
					talks = append(talks, c)
				}
				x.hold(e, c, now)
				for _, p := range keptOf(c) {
					sets[e][p.Fingerprint] = true
				}
			},
			"forget": func(t *rapid.T) {
				e := rapid.IntRange(0, engines-1).Draw(t, "engine")
				x.clear(uint16(e))
				clear(sets[e])
			},
			"": func(t *rapid.T) {
				if err := x.recount(); err != nil {
					t.Fatal(err)
				}
				for _, c := range talks {
					kept := keptOf(c)
					any := 0
					for e := range sets {
						want := 0
						for want < len(kept) && sets[e][kept[want].Fingerprint] {
							want++
						}
						any = max(any, want)
						if got := x.depth(kept, e, rapid.IntRange(0, len(kept)).Draw(t, "guess")); got != want {
							t.Fatalf("depth %d, want %d", got, want)
						}
					}
					if got := x.depth(kept, anyone, 0); got != any {
						t.Fatalf("anyone's depth %d, want %d", got, any)
					}
				}
			},
		})
	})
}

// With capacity, every engine holds whole prefixes only, stays within its capacity, and a chain never outlives a newer one.
func TestIndexLosesOldestTailsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex(2, int64(rapid.IntRange(2000, 40_000).Draw(t, "capacity")))
		if rapid.Bool().Draw(t, "bounded") {
			x.maxTokens = int64(rapid.IntRange(1000, 50_000).Draw(t, "bound"))
			x.maxPoints = rapid.IntRange(20, 400).Draw(t, "points")
		}
		var talks []*talk
		for i := range 4 {
			talks = append(talks, begin(uint64(i/2), 8000, uint64(i), 300))
		}
		now := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"turn": func(t *rapid.T) {
				now++
				i := rapid.IntRange(0, len(talks)-1).Draw(t, "talk")
				c := talks[i].fork().say(uint64(now), rapid.IntRange(10, 9000).Draw(t, "bytes"))
				if c.bytes > 100_000 {
					c = begin(uint64(now), 500, 1, 1)
				}
				talks[i] = c
				x.hold(rapid.IntRange(0, 1).Draw(t, "engine"), c, now)
			},
			"undo": func(t *rapid.T) {
				now++
				c := talks[0].fork().say(uint64(now), 5000)
				kept := keptOf(c)
				depth := x.depth(kept, 0, len(kept))
				added, _ := x.touch(0, kept, depth, now, 4)
				x.undo(0, kept[len(kept)-1].Fingerprint, added, 1<<40)
			},
			"drop": func(t *rapid.T) { x.dropUnused(0, now-int64(rapid.IntRange(0, 5).Draw(t, "age"))) },
			"": func(t *rapid.T) {
				if err := x.recount(); err != nil {
					t.Fatal(err)
				}
				for e := range x.caches {
					if c := &x.caches[e]; c.tokens > c.capacity {
						t.Fatalf("%d tokens in a cache of %d", c.tokens, c.capacity)
					}
				}
				if x.tokens > x.maxTokens || x.entries.len() > x.maxPoints {
					t.Fatalf("%d tokens of %d, %d points of %d", x.tokens, x.maxTokens, x.entries.len(), x.maxPoints)
				}
			},
		})
	})
}

func TestOldestChainLosesItsTailFirst(t *testing.T) {
	x := newIndex(1, 30_000)
	old, young := begin(1, 40_000, 1, 1000), begin(1, 40_000, 2, 1000)
	old.say(1, 20_000)
	young.say(2, 20_000)
	x.hold(0, old, 1)
	x.hold(0, young, 2) // 10,000 tokens of head, twice 5,000 of their own
	if d := x.depth(keptOf(old), 0, 0); d != len(keptOf(old)) {
		t.Fatalf("%d of %d held", d, len(keptOf(old)))
	}
	x.hold(0, begin(9, 30_000, 9, 20_000), 3)
	kept := keptOf(old)
	d := x.depth(kept, 0, 0)
	if d == len(kept) || int(kept[d-1].Bytes) < 40_000 {
		t.Errorf("the older chain keeps %d of %d points, %d bytes; want the head and a part", d, len(kept), kept[d-1].Bytes)
	}
	if d, n := x.depth(keptOf(young), 0, 0), len(keptOf(young)); d != n {
		t.Errorf("the younger chain keeps %d of %d points", d, n)
	}
	if err := x.recount(); err != nil {
		t.Fatal(err)
	}
}

// Sessions of Claude Code's size: 55 KB of shared head, 142,000 tokens in all, three in four of the parts small.
func TestIndexMemoryPerThousandTokens(t *testing.T) {
	for _, sessions := range []int{200, 1000} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			before := heapInUse()
			x := newIndex(8, 1<<40)
			for s := range sessions {
				c := begin(1, 55_000, uint64(s), 2000)
				for n := 0; c.bytes < 511_000; n++ {
					c.say(uint64(n), 500+2500*(n%4))
				}
				kept := keptOf(c)
				x.touch(uint16(s%8), kept, x.depth(kept, s%8, 0), int64(s), 3.6)
			}
			used := heapInUse() - before
			per := float64(used) / (float64(x.tokens) / 1000)
			t.Logf("%.1f bytes of heap per 1,000 tokens (%d points, %d runs), accounted for %.1f", per, x.entries.len(), x.runs.len(), float64(x.bytes())/(float64(x.tokens)/1000))
			if per > 100 {
				t.Errorf("%.1f bytes per 1,000 cached tokens, want at most 100", per)
			}
			runtime.KeepAlive(x)
		})
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
