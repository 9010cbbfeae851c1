package lanesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// small is an engine with steps of about 100 ms for a full batch, 10,000 tokens/s whatever the context.
func small(mode sim.Mode) sim.Options {
	return sim.Options{Mode: mode, BlockTokens: 16, KVTokens: 2_000_000, MaxModelLen: 400_000, MaxBatchedTokens: 1024,
		Cost: sim.Cost{Base: 0.001, Prefill: 1e-4, Decode: 1e-5}}
}

const (
	smallStep = 0.1034
	smallRate = 1024 / smallStep
)

// adversary is short turns by any process at all, over long ones.
type adversary struct {
	reqs []Request
}

func prompt(n int, salt uint64) sim.Prompt {
	return sim.BlockPrompt(16, blocks(salt<<24, nil, n/16), n%16)
}

// against draws an arrival process: bursts, a flood in closed step, single ones timed to the engine's steps, or nothing.
func against(t *rapid.T) adversary {
	var a adversary
	add := func(at time.Duration, tokens int) {
		r := Request{At: at, Prompt: prompt(tokens, uint64(len(a.reqs)+1)), Fresh: tokens, Output: 1 + len(a.reqs)%30, Tenant: uint64(len(a.reqs) % 3)}
		if rapid.IntRange(0, 9).Draw(t, "leaves") == 0 {
			r.LeaveAfter = time.Duration(rapid.IntRange(1, 5000).Draw(t, "leaves after")) * time.Millisecond
		}
		r.Unstreamed = rapid.IntRange(0, 9).Draw(t, "unstreamed") == 0
		a.reqs = append(a.reqs, r)
	}
	at := time.Duration(0)
	for range rapid.IntRange(1, 12).Draw(t, "phases") {
		for range rapid.IntRange(0, 2).Draw(t, "longs") {
			add(at, rapid.IntRange(6000, 60_000).Draw(t, "tokens"))
		}
		n := rapid.IntRange(0, 30).Draw(t, "shorts")
		gap := time.Duration(rapid.SampledFrom([]int{0, 1, 20, 52, 103, 104, 210, 500}).Draw(t, "gap")) * time.Millisecond
		for range n {
			at += gap
			add(at, rapid.IntRange(1, 1500).Draw(t, "short"))
		}
		at += time.Duration(rapid.IntRange(0, 1000).Draw(t, "pause")) * time.Millisecond
	}
	slices.SortStableFunc(a.reqs, func(x, y Request) int { return int(x.At - y.At) })
	return a
}

// Against any arrivals, in front of both kinds of engine: every request ends in one way, no copy lives twice, nothing is
// taken back after its first token or before its minimum run (Play and watch say so), what interactive requests cost a long
// one is bounded, and the long lane keeps its share.
func TestAgainstAnyArrivals(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		t.Run(mode.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				sliced := rapid.Bool().Draw(t, "slices")
				share := rapid.SampledFrom([]float64{0.2, 0.5, 0.8}).Draw(t, "share")
				a := against(t)
				opt := Options{Engine: small(mode), NoSlices: !sliced, NoUsage: rapid.Bool().Draw(t, "no usage"),
					Front: time.Duration(rapid.SampledFrom([]int{0, 0, 70}).Draw(t, "front")) * time.Millisecond, Lanes: lane.Options{Share: share}, Facts: lane.Facts{PrefillRate: smallRate, StepSeconds: smallStep}}
				least := time.Duration(smallStep * 1e9)
				if mode == sim.SGLang {
					least *= 4
				}
				sent := map[uint64]int64{}
				var broken error
				opt.Watch = func(now int64, what string, id uint64) {
					switch what {
					case "arrive go", "admit quiet", "admit guaranteed", "admit immune":
						sent[id] = now
					case "preempt blocking", "preempt overdue":
						if ran := time.Duration(now - sent[id]); ran < least {
							broken = fmt.Errorf("%d was preempted after %v, want a minimum run of %v", id, ran, least)
						}
					}
				}
				run, err := Play(opt, a.reqs)
				if err == nil {
					err = broken
				}
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range run.Results {
					if r.Outcome == Left && a.reqs[i].LeaveAfter == 0 {
						t.Fatalf("request %d left unasked", i)
					}
					if r.Class == lane.Interactive && r.FirstSent != a.reqs[i].At {
						t.Fatalf("request %d is interactive, came at %v and was sent at %v", i, a.reqs[i].At, r.FirstSent)
					}
					if !sliced && r.Slices > 0 || r.Sends != 1+r.Slices+r.Preempted && r.Outcome == Finished {
						t.Fatalf("request %d was sent %d times, with %d slices and %d preemptions", i, r.Sends, r.Slices, r.Preempted)
					}
					own := time.Duration(float64(a.reqs[i].Fresh) / smallRate * 1e9)
					// One abort may go beyond the bound: it takes a step, and SGLang computes one again. The pace that is
					// observed of long ones, which is less than the rate, counts for the bound.
					most := max(2*time.Second, time.Duration(float64(own)*1.25*(1-share)/share)) + 3*time.Duration(smallStep*1e9)
					if r.Extra > most {
						t.Fatalf("request %d of %d tokens was delayed by %v, at most %v", i, a.reqs[i].Fresh, r.Extra, most)
					}
				}
				v := run.View
				if v.Held+v.Back+v.InFlight+v.Waiting+v.Decoding != 0 {
					t.Fatalf("something is left: %+v", v)
				}
				grace, step := 0.25, smallStep
				// Every time that the lane was empty it begins with its grace; beyond that, Share rules.
				most := float64(len(a.reqs))*grace + 4*max(grace, step) + v.Totals.RunSeconds*(1-share)/share + 2*step
				if v.Totals.BlockedSeconds > most {
					t.Fatalf("blocked for %.2f s with %.2f s of running, at most %.2f", v.Totals.BlockedSeconds, v.Totals.RunSeconds, most)
				}
			})
		})
	}
}

// S4: short turns without a pause, as many as the engine can take and more, and long prompts one after the other. Each ends
// within its bound, and over the contended time the long lane has its share.
func TestNoStarvation(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		for n, share := range []float64{0.3, 0.5, 0.7, 0.3, 0.5, 0.7} {
			whole := n >= 3
			rng := rand.New(rand.NewPCG(7, uint64(mode)))
			var reqs []Request
			add := func(at time.Duration, tokens int) {
				reqs = append(reqs, Request{At: at, Prompt: prompt(tokens, uint64(len(reqs)+1)), Fresh: tokens, Output: 5})
			}
			const longs, tokens = 4, 50_000 // 5 s each alone
			for range longs {
				add(time.Second, tokens)
			}
			for at := time.Duration(0); at < 120*time.Second; at += time.Duration(rng.ExpFloat64() * float64(80*time.Millisecond)) {
				add(at, 400) // half of the engine, as much as it can give beside the guaranteed share
			}
			slices.SortStableFunc(reqs, func(x, y Request) int { return int(x.At - y.At) })
			run, err := Play(Options{Engine: small(mode), NoSlices: whole, Lanes: lane.Options{Share: share}, Facts: lane.Facts{PrefillRate: smallRate}}, reqs)
			if err != nil {
				t.Fatal(mode, share, err)
			}
			var worst time.Duration
			preempted := 0
			for i, r := range run.Results {
				if reqs[i].Fresh != tokens {
					continue
				}
				worst = max(worst, r.FirstToken-reqs[i].At)
				preempted += r.Preempted
			}
			v := run.View.Totals
			got := (v.RunSeconds - v.LostSeconds) / (v.RunSeconds + v.BlockedSeconds)
			t.Logf("%v slices %v share %.1f: long lane had %.2f, the last of 4 prompts of 5.2 s was ready after %.1f s, %d preemptions, delay %.1f s", mode, !whole, share, got, worst.Seconds(), preempted, v.Long.ExtraSeconds)
			if got < share-0.05 {
				t.Errorf("%v: the long lane had %.2f of the contended time, want %.2f", mode, got, share)
			}
			// Its own work, in SGLang a fifth of it once more, over its share; and the engine's other work at most as much.
			if most := time.Duration(float64(longs*tokens) / smallRate * 1.25 / share * 1.5 * 1e9); worst > most {
				t.Errorf("%v share %.1f: the last was ready after %v, want at most %v", mode, share, worst, most)
			}
		}
	}
}

// The same requests give the same run, to the nanosecond.
func TestDeterministic(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		var logs [2][]string
		for n := range logs {
			reqs, _ := Mix{Seed: 5, PerSec: 0.6, Length: 10 * time.Minute, Sessions: 10, Context: 60_000}.Make()
			_, err := Play(Options{Engine: h100(mode), Watch: func(now int64, what string, id uint64) {
				logs[n] = append(logs[n], fmt.Sprint(now, what, id))
			}}, reqs)
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(logs[0], logs[1]) {
			t.Errorf("%v: two runs differ", mode)
		}
	}
}

// An engine whose own chunks are small lets short turns join: it is noticed, and nothing is taken back any more.
func TestChunksOfTheEngineAreNoticed(t *testing.T) {
	engine := small(sim.VLLM)
	engine.LongPrefillThreshold = 256
	var reqs []Request
	for i := range 5 {
		reqs = append(reqs, Request{At: time.Duration(i) * time.Second, Prompt: prompt(100_000, uint64(i+1)), Fresh: 100_000, Output: 5})
	}
	for i := range 200 {
		reqs = append(reqs, Request{At: time.Duration(i) * 173 * time.Millisecond, Prompt: prompt(60, uint64(i+100)), Fresh: 60, Output: 5})
	}
	slices.SortStableFunc(reqs, func(x, y Request) int { return int(x.At - y.At) })
	run, err := Play(Options{Engine: engine, Facts: lane.Facts{PrefillRate: smallRate}}, reqs)
	if err != nil {
		t.Fatal(err)
	}
	var worst time.Duration
	for i, r := range run.Results {
		if reqs[i].Fresh == 60 {
			worst = max(worst, r.FirstToken-reqs[i].At)
		}
	}
	v := run.View
	t.Logf("%d preemptions, beside %.3f s, worst short %v", v.Totals.Preempted, v.ShortBehindLong, worst)
	if v.Totals.Preempted > 5 || v.ShortBehindLong == 0 || worst > 400*time.Millisecond {
		t.Errorf("%d preemptions, beside %.3f s, worst short %v", v.Totals.Preempted, v.ShortBehindLong, worst)
	}
}
