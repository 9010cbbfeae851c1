package gossip

import (
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/ring"
)

func anyDigest() *rapid.Generator[Digest] {
	return rapid.Custom(func(t *rapid.T) Digest {
		number := func(what string) int { return rapid.IntRange(-1, math.MaxInt32-1).Draw(t, what) }
		return Digest{
			Engine: rapid.Uint32().Draw(t, "engine"), Reader: rapid.Uint32().Draw(t, "reader"), Age: time.Duration(rapid.IntRange(0, 36_000).Draw(t, "age")) * lifeUnit,
			Running: number("running"), Waiting: number("waiting"), Usage: number("usage"), KVTokens: rapid.Int64Range(0, math.MaxInt64).Draw(t, "kv"),
			Start: rapid.Int64Range(0, math.MaxInt64).Draw(t, "start"), Work: rapid.Int64Range(-1, math.MaxInt64-1).Draw(t, "work"),
			Source: rapid.Uint8().Draw(t, "source"), Models: rapid.Uint32().Draw(t, "models"),
		}
	})
}

// heardOf collects what a member is told of engines' pages.
type heardOf struct {
	mu   sync.Mutex
	last map[string]Digest
}

func (h *heardOf) option(o *Options) {
	h.last = map[string]Digest{}
	o.OnDigest = func(engine string, d Digest) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last[engine] = d
	}
}

func (h *heardOf) running(engine string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.last[engine]
	if !ok {
		return -2
	}
	return d.Running
}

func TestWhatOneMemberReadsAllOthersHear(t *testing.T) {
	t.Parallel()
	heard := make([]heardOf, 3)
	names := engineNames(200) // more than one packet can tell of
	all := startCluster(t, 3, names, func(i int, o *Options) { heard[i].option(o) })
	for i, name := range names {
		all[0].Read(name, Digest{Running: i, Waiting: -1, Usage: 300, KVTokens: 5000, Work: 77, Source: 1})
	}
	all[0].Read("nobody's", Digest{Running: 5})
	for i := 1; i < 3; i++ {
		eventually(t, "all digests", func() bool {
			for n, name := range names {
				if heard[i].running(name) != n {
					return false
				}
			}
			return true
		})
		heard[i].mu.Lock()
		if d := heard[i].last["e7"]; d.Waiting != -1 || d.Usage != 300 || d.KVTokens != 5000 || d.Work != 77 || d.Source != 1 {
			t.Errorf("%+v", d)
		}
		heard[i].mu.Unlock()
		if by := all[i].ReadBy("e7"); by != all[0].Name() {
			t.Errorf("read by %q", by)
		}
	}
	var late heardOf
	joiner := startMember(t, names, []string{all[1].Address()}, late.option)
	<-joiner.Ready()
	if late.running("e9") != 9 {
		t.Error("a joiner is not told what all others know")
	}
}

func TestOldDigestsAreNoNews(t *testing.T) {
	d := newDigests()
	second := int64(time.Second)
	if !d.take(10*second, Digest{Engine: 1, Age: time.Second}) {
		t.Error("the first is news")
	}
	for what, again := range map[string]Digest{"the same": {Engine: 1, Age: 2 * time.Second}, "an older one": {Engine: 1, Age: 4 * time.Second}, "one that says nothing any more": {Engine: 2, Age: digestLife}} {
		if d.take(11*second, again) {
			t.Error(what, "is taken for news")
		}
	}
	if got := d.all(10*second + int64(digestLife)); len(got) != 0 {
		t.Errorf("a joiner is told %+v", got)
	}
	if len(d.due(11*second, 10)) != 0 {
		t.Error("what another has read is told again")
	}
	d.own(11*second, Digest{Engine: 1})
	d.own(11*second, Digest{Engine: 3})
	told := len(d.due(12*second, 1)) + len(d.due(12*second, 10)) + len(d.due(12*second, 10)) + len(d.due(12*second, 10))
	if told != 2*digestTimes || d.untold() != 0 {
		t.Errorf("told %d times, %d untold", told, d.untold())
	}
}

func TestSpeedsReachAJoiner(t *testing.T) {
	t.Parallel()
	names := engineNames(2)
	all := startCluster(t, 2, names, nil)
	for i := range 6 { // alone on its engine: 10,000 fresh tokens in a second
		var d ring.Decision
		at := clock()
		ch, err := all[0].placer.Place(&ring.Turn{Now: at, Session: uint64(i + 1), Prompt: promptOf(uint64(i+1), 40_000)}, &d)
		if err != nil {
			t.Fatal(err)
		}
		ch.FirstToken(at + int64(time.Second))
		ch.Release(at+int64(time.Second), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
	}
	speeds := all[0].placer.Speeds(nil)
	if len(speeds) == 0 {
		t.Fatal("no speed was learned")
	}
	late := startMember(t, names, []string{all[0].Address()}, nil)
	<-late.Ready()
	for _, e := range late.placer.Snapshot() {
		for _, s := range speeds {
			if ring.EngineID(e.Name) == s.Engine && int(e.PrefillRate) != s.PerSecond {
				t.Errorf("%s: %v tokens per second, learned were %d", e.Name, e.PrefillRate, s.PerSecond)
			}
		}
	}
}

// An engine is left to those that have it: one that is not in a member's list is not that member's to read.
func TestAnEngineIsReadByOneThatHasIt(t *testing.T) {
	t.Parallel()
	common := engineNames(3)
	more := append(engineNames(3), "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7")
	states := func(names []string) func() []EngineState {
		return func() (list []EngineState) {
			for _, name := range names {
				list = append(list, EngineState{name, ring.Ready})
			}
			return list
		}
	}
	a := startMember(t, common, nil, func(o *Options) { o.EngineStates = states(common) })
	b := startMember(t, more, []string{a.Address()}, func(o *Options) { o.EngineStates = states(more) })
	awaitMembers(t, []*proxy{a, b})
	eventually(t, "the only one that has them to look after them", func() bool {
		for _, name := range more[3:] {
			if !b.Owner(name) {
				return false
			}
		}
		return true
	})
	eventually(t, "one reader for what both have", func() bool {
		for _, name := range common {
			if a.Owner(name) == b.Owner(name) {
				return false
			}
		}
		return true
	})
	for _, name := range common {
		if a.Turn(name)+b.Turn(name) != 1 {
			t.Errorf("%s: turns %d and %d", name, a.Turn(name), b.Turn(name))
		}
	}
	if err := a.SetEngines(more, Traits{}); err != nil { // a reload
		t.Fatal(err)
	}
	eventually(t, "both to have them", func() bool {
		n := 0
		for _, name := range more {
			if a.Owner(name) != b.Owner(name) {
				n++
			}
		}
		return n == len(more)
	})
	for _, p := range []*proxy{a, b} {
		if v := p.View(); len(v.Members[0].Differs) != 0 || v.Reads == 0 || v.Reads == len(more) {
			t.Errorf("%s reads %d engines; %v", v.Name, v.Reads, v.Members[0].Differs)
		}
	}
}
