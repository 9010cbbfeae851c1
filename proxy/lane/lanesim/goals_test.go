package lanesim

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

var (
	seeds = flag.Int("seeds", 2, "hours of traffic in TestTheMixOfAgents, each from its own seed")
	all   = flag.Bool("all", false, "small steps, a slow front end and other ways too in TestTheMixOfAgents, as in DESIGN.md")
)

// h100 is an engine at about the rates of a mid-size model on one large GPU.
func h100(mode sim.Mode) sim.Options {
	return sim.Options{Mode: mode, BlockTokens: 16, KVTokens: 4_000_000, MaxModelLen: 400_000, MaxBatchedTokens: 8192}
}

// stepInTheWay is the mean length of the step that a short turn finds in flight when it comes at any moment of a long prefill.
// Long steps are found more often.
func stepInTheWay(engine sim.Options, mixes []Mix) time.Duration {
	c, n := sim.DefaultCost(), float64(engine.MaxBatchedTokens)
	sum, squares := 0.0, 0.0
	for _, m := range mixes {
		reqs, kinds := m.Make()
		for i := m.Sessions; i < len(reqs); i++ {
			for at := 0.0; kinds[i] >= Large && at+n <= float64(reqs[i].Fresh); at += n {
				d := c.Base + c.Prefill*n*(1+c.Context*(at+n/2))
				sum, squares = sum+d, squares+d*d
			}
		}
	}
	return time.Duration(squares / sum * 1e9)
}

func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(p*float64(len(d))), len(d)-1)]
}

// figures are times to first token by class, and what else a set of runs gave.
type figures struct {
	ttft      [4][]time.Duration
	preempted int
	slices    int
	immune    uint64
	prefilled int64
	last      lane.View
}

func measure(t *testing.T, opt Options, mixes []Mix) *figures {
	t.Helper()
	f := &figures{}
	for _, m := range mixes {
		m.Block = opt.Engine.BlockTokens
		reqs, kinds := m.Make()
		run, err := Play(opt, reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i := m.Sessions; i < len(reqs); i++ {
			r := &run.Results[i]
			if r.Outcome != Finished {
				t.Fatalf("request %d: %v", i, r.Outcome)
			}
			f.ttft[kinds[i]] = append(f.ttft[kinds[i]], r.FirstToken-reqs[i].At)
			f.preempted += r.Preempted
			f.slices += r.Slices
		}
		f.prefilled += run.Stats.Prefilled
		f.immune += run.View.Totals.Immune
		f.last = run.View
	}
	return f
}

func (f *figures) at(k Kind, p float64) time.Duration { return percentile(f.ttft[k], p) }

// longs are Large and Huge together.
func (f *figures) longs(p float64) time.Duration {
	return percentile(append(slices.Clone(f.ttft[Large]), f.ttft[Huge]...), p)
}

func (f *figures) String() string {
	s := ""
	for k := Short; k <= Huge; k++ {
		s += fmt.Sprintf(" | %6.2f %6.2f", f.at(k, .5).Seconds(), f.at(k, .99).Seconds())
	}
	return s + fmt.Sprintf(" | %5d | %5d | %5.1fM", f.preempted, f.slices, float64(f.prefilled)/1e6)
}

// S3: the mix of agents' traffic at the rates of a large GPU. In front of both kinds of engine short turns hardly notice that
// there are long prompts, and the long ones hardly notice that they give way.
func TestTheMixOfAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("a simulation of hours")
	}
	var mixes, bare []Mix
	for seed := range uint64(*seeds) {
		m := Mix{Seed: seed + 1, PerSec: 0.6, Length: time.Hour, Sessions: 30, Context: 60_000}
		mixes = append(mixes, m)
		m.NoLong = true
		bare = append(bare, m)
	}
	t.Logf("%-6s %4s %5s %-12s | <2k P50    P99 | 2-16k P50  P99 | 16-64k P50 P99 | >=64k P50  P99 | taken back | slices | prefilled", "engine", "step", "front", "lanes")
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		for _, batch := range []int{8192, 2048} {
			for _, front := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond} {
				if !*all && (batch < 8192 || front == 100*time.Millisecond) {
					continue
				}
				engine := h100(mode)
				engine.MaxBatchedTokens = batch
				row := func(name string, opt Options, mixes []Mix) *figures {
					opt.Engine, opt.Front = engine, front
					f := measure(t, opt, mixes)
					t.Logf("%-6s %4d %5d %-12s%v", mode, batch, front.Milliseconds(), name, f)
					return f
				}
				none := row("no long ones", Options{}, bare)
				off := row("off", Options{Lanes: lane.Options{Off: true}}, mixes)
				if *all && front == 0 {
					row("hold only", Options{HoldOnly: true, NoSlices: true}, mixes)
					row("preempt", Options{NoSlices: true}, mixes)
				}
				on := row("slices", Options{}, mixes)

				step := stepInTheWay(engine, mixes)
				t.Logf("%-6s %4d a long prefill's step lasts %.2f s, a slice %.2f s", mode, batch, step.Seconds(), on.last.SliceSeconds)
				most := time.Duration(1.3*float64(none.at(Short, .99))) + step
				// Each slice costs the front end's time. The longest ones are passed by shorter ones, which may add a quarter; of all
				// long ones together most are no later than with lanes off.
				slower := 1.2 + 1.5*front.Seconds()
				if got := on.at(Short, .99); got > most {
					t.Errorf("%v, %d a step, front %v: short P99 %v, want at most %v", mode, batch, front, got, most)
				}
				if got, most := on.at(Huge, .5), time.Duration(slower*float64(off.at(Huge, .5))); got > most {
					t.Errorf("%v, %d a step, front %v: long P50 %v, want at most %v", mode, batch, front, got, most)
				}
				if got, most := on.longs(.5), time.Duration(1.1*float64(off.longs(.5))); got > most {
					t.Errorf("%v, %d a step, front %v: P50 of all from 16k %v, want at most %v", mode, batch, front, got, most)
				}
				if got, most := on.at(Medium, .99), off.at(Medium, .99)/5; got > most {
					t.Errorf("%v, %d a step, front %v: P99 of 2k to 16k %v, want at most %v", mode, batch, front, got, most)
				}
				if got, most := on.at(Huge, .99), 2*off.at(Huge, .99); got > most {
					t.Errorf("%v, %d a step, front %v: long P99 %v, want at most %v", mode, batch, front, got, most)
				}
			}
		}
	}
}
