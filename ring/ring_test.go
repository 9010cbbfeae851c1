package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.%d.%d:8000", i/200, i%200)
	}
	return out
}

func ringOf(names []string) (*hashRing, func(key uint64) string) {
	members := make([]member, len(names))
	for i, n := range names {
		members[i] = member{name: n}
	}
	r := newHashRing(160, members)
	return r, func(key uint64) string { return names[r.owners[r.find(key)]] }
}

// The same engines in any order make the same ring.
func TestRingAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 1, 12, rapid.ID[string]).Draw(t, "names")
		b := rapid.Permutation(a).Draw(t, "permuted")
		_, homeA := ringOf(a)
		_, homeB := ringOf(b)
		for range 50 {
			key := rapid.Uint64().Draw(t, "key")
			if homeA(key) != homeB(key) {
				t.Fatalf("home of %x is %s and %s", key, homeA(key), homeB(key))
			}
		}
	})
}

// C103: removing an engine moves its own keys only, adding one moves keys only to it, and no more than its share.
func TestRingMovesNoKeyNeedlessly(t *testing.T) {
	all := names(9)
	_, eight := ringOf(all[:8])
	_, nine := ringOf(all)
	_, without := ringOf(slices.Delete(slices.Clone(all[:8]), 5, 6))
	moved, lost := 0, 0
	const keys = 10_000
	for key := range uint64(keys) {
		before := eight(key)
		if after := without(key); after != before {
			lost++
			if before != all[5] {
				t.Fatalf("key %d moved from %s to %s although that engine stayed", key, before, after)
			}
		}
		if after := nine(key); after != before {
			moved++
			if after != all[8] {
				t.Fatalf("key %d moved from %s to %s", key, before, after)
			}
		}
	}
	if share := float64(moved) / keys; share > 1.0/9+0.02 {
		t.Errorf("a ninth engine took %.1f %% of the keys", 100*share)
	}
	if share := float64(lost) / keys; share < 0.09 || share > 0.16 {
		t.Errorf("one of eight engines had %.1f %% of the keys", 100*share)
	}
}

func TestRingBalance(t *testing.T) {
	for _, n := range []int{2, 8, 64, 512} {
		ns := names(n)
		_, home := ringOf(ns)
		load := map[string]int{}
		random := rand.New(rand.NewPCG(1, uint64(n)))
		keys := n * 2000
		for range keys {
			load[home(random.Uint64())]++
		}
		most := 0
		for _, l := range load {
			most = max(most, l)
		}
		ratio := float64(most) * float64(n) / float64(keys)
		t.Logf("%d engines: max/mean %.2f", n, ratio)
		if ratio > 1.35 {
			t.Errorf("%d engines: max/mean %.2f", n, ratio)
		}
	}
}

func TestRingWeights(t *testing.T) {
	r := newHashRing(160, []member{{"big", 3}, {"small", 1}, {"odd", -1}})
	load := [3]int{}
	for key := range uint64(100_000) {
		load[r.owners[r.find(key)]]++
	}
	if ratio := float64(load[0]) / float64(load[1]); ratio < 2.2 || ratio > 4 {
		t.Errorf("three times the weight gets %.1f times the keys: %v", ratio, load)
	}
}

// The walk meets every engine, and finds the right place on the circle.
func TestRingFindsTheNextPointClockwise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, _ := ringOf(names(rapid.IntRange(1, 20).Draw(t, "engines")))
		key := rapid.Uint64().Draw(t, "key")
		want, _ := slices.BinarySearch(r.hashes, mix(key))
		if want == len(r.hashes) {
			want = 0
		}
		if got := r.find(key); got != want {
			t.Fatalf("found point %d, want %d", got, want)
		}
	})
}

// C103 for a Placer: an engine that is down lends its keys to the others and gets them back.
func TestHomesComeBack(t *testing.T) {
	w := newWorld(t, Options{}, fleet(8, 0))
	before := map[uint64]string{}
	for key := range uint64(500) {
		before[key] = w.turn(key+1, begin(0, 0, key, 500)).Home
	}
	down := fleet(8, 0)
	down[5].State = Down
	w.SetEngines(w.now, down)
	for key := range uint64(500) {
		if home := w.turn(key+1, begin(0, 0, key, 500)).Home; home != before[key] && before[key] != "e5" || home == "e5" {
			t.Fatalf("home of %d went from %s to %s", key, before[key], home)
		}
	}
	w.SetEngines(w.now, fleet(8, 0))
	for key := range uint64(500) {
		if home := w.turn(key+1, begin(0, 0, key, 500)).Home; home != before[key] {
			t.Fatalf("home of %d is %s, was %s", key, home, before[key])
		}
	}
	homes, err := w.Homes(nil, 9, 3)
	if err != nil || len(homes) != 3 {
		t.Errorf("homes %v, %v", homes, err)
	}
}

// With nearly all engines down a turn still finds one that is up.
func TestOneOfManyIsUp(t *testing.T) {
	engines := fleet(300, 0)
	for i := range engines {
		engines[i].State = Down
	}
	engines[123].State = Ready
	w := newWorld(t, Options{}, engines)
	if d := w.turn(5, begin(0, 0, 1, 500)); d.Engine != "e123" || d.Reason != Only {
		t.Errorf("%+v", d)
	}
	engines[7].State = Busy
	engines[123].State = Down
	w.SetEngines(w.now, engines)
	if d := w.turn(6, begin(0, 0, 2, 500)); d.Engine != "e7" {
		t.Errorf("%+v", d)
	}
	engines[9].State = Draining
	engines[7].State = Down
	w.SetEngines(w.now, engines)
	var d Decision
	if _, err := w.Place(&Turn{Now: w.now}, &d); err == nil {
		t.Errorf("placed with no engine up: %+v", d)
	}
}
