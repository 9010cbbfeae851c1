package lanesim

import (
	"slices"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// steady is long prompts back to back and sessions that each take a short turn every two seconds.
func steady(longs, tokens, sessions int, length time.Duration) []Request {
	var reqs []Request
	add := func(at time.Duration, tokens int) {
		reqs = append(reqs, Request{At: at, Tenant: uint64(len(reqs)), Prompt: prompt(tokens, uint64(len(reqs)+1)), Fresh: tokens, Output: 20})
	}
	for range longs {
		add(time.Second, tokens)
	}
	for at := time.Duration(0); at < length; at += 2 * time.Second / time.Duration(sessions) {
		add(at, 60)
	}
	slices.SortStableFunc(reqs, func(x, y Request) int { return int(x.At - y.At) })
	return reqs
}

// outcome is what became of the long and the short ones of such a run.
func outcome(t *testing.T, opt Options, reqs []Request) (last time.Duration, short []time.Duration, run *Run) {
	t.Helper()
	run, err := Play(opt, reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range run.Results {
		if r.Outcome != Finished {
			t.Fatalf("request %d: %v", i, r.Outcome)
		}
		if reqs[i].Fresh > 60 {
			last = max(last, r.FirstToken)
		} else {
			short = append(short, r.FirstToken-reqs[i].At)
		}
	}
	return last, short, run
}

// slow is an engine on a few cores: 2,800 tokens/s, in steps of a second and more.
func slow(mode sim.Mode, step int) sim.Options {
	return sim.Options{Mode: mode, BlockTokens: 16, KVTokens: 1_000_000, MaxModelLen: 200_000, MaxBatchedTokens: step,
		Cost: sim.Cost{Base: 0.01, Prefill: 1 / 2800.0, Context: 1e-5, Decode: 0.002}}
}

// An engine with long steps, abort and replay only: a prompt that is taken back again and again must not starve. What each
// abort throws away is delay, runs become longer until they gain, and in the end it is immune.
func TestAbortAndReplayAtLongStepsDoesNotStarve(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		for _, step := range []int{2048, 8192} {
			for _, unseen := range []bool{false, true} {
				reqs := steady(4, 25_000, 5, 3*time.Minute)
				engine := slow(mode, step)
				off, _, _ := outcome(t, Options{Engine: engine, Lanes: lane.Options{Off: true}}, reqs)
				on, short, run := outcome(t, Options{Engine: engine, NoSlices: true, Unseen: unseen}, reqs)
				v := run.View
				t.Logf("%v, steps of %d, aborts unseen %v: 4 prompts in %.1f s, lanes off %.1f s; %d taken back; a step is believed to last %.2f s; short P50 %.2f P99 %.2f s",
					mode, step, unseen, on.Seconds(), off.Seconds(), v.Totals.Preempted, v.StepSeconds, percentile(short, .5).Seconds(), percentile(short, .99).Seconds())
				if on > off*7/4 {
					t.Errorf("the last of them was ready after %v, with lanes off %v", on, off)
				}
				if v.Totals.Preempted == 0 {
					t.Error("nothing was taken back")
				}
				// Two steps at least for each: of what is sent again, at most half as many as there are steps.
				if most := 4*25_000/step*3/2 + 8; int(v.Totals.Preempted) > most {
					t.Errorf("%d were taken back, at most %d runs of two steps fit", v.Totals.Preempted, most)
				}
			}
		}
	}
}

// The same in slices: nothing is ever computed twice, whatever the steps, and short turns wait for a slice at most.
func TestSlicesAtLongSteps(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang, sim.Llama} {
		reqs := steady(4, 25_000, 5, 3*time.Minute)
		engine := slow(mode, 8192)
		if mode == sim.Llama {
			engine.MaxRunning, engine.KVTokens = 64, 4_000_000 // answers stand beside slices, and hold their slots for long
		}
		for _, front := range []time.Duration{0, 70 * time.Millisecond} {
			off, _, plain := outcome(t, Options{Engine: engine, Front: front, Lanes: lane.Options{Off: true}}, reqs)
			on, short, run := outcome(t, Options{Engine: engine, Front: front, HoldOnly: mode == sim.Llama}, reqs)
			v := run.View.Totals
			t.Logf("%v, front end %v: 4 prompts in %.1f s, lanes off %.1f s; %d slices of %.2f s, %d taken back; short P50 %.2f P99 %.2f s; computed %.3f",
				mode, front, on.Seconds(), off.Seconds(), v.Slices, v.SliceSeconds/float64(v.Slices), v.Preempted, percentile(short, .5).Seconds(), percentile(short, .99).Seconds(),
				float64(run.Stats.Prefilled)/float64(plain.Stats.Prefilled))
			if got := percentile(short, .99); got > 1200*time.Millisecond {
				t.Errorf("%v: short P99 %v", mode, got)
			}
			if on > off*7/4 || v.Slices < 20 || v.SlicesLost > 0 {
				t.Errorf("%v: the last of them was ready after %v, with lanes off %v; %+v", mode, on, off, v)
			}
		}
	}
}

// A front end that takes long to read a long prompt (a second and a half for 150k tokens) is not asked to read it thousands of
// times: short turns tell nothing of it, as theirs are short. Slices grow until most of their time is work.
func TestSlicesBehindASlowFrontEnd(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		reqs := steady(2, 150_000, 5, 3*time.Minute)
		engine := slow(mode, 2048)
		engine.Cost.Prefill = 1 / 10_000.0
		for _, front := range []time.Duration{time.Microsecond, 5 * time.Microsecond, 10 * time.Microsecond} {
			off, _, _ := outcome(t, Options{Engine: engine, FrontToken: front, Lanes: lane.Options{Off: true}}, reqs)
			on, short, run := outcome(t, Options{Engine: engine, FrontToken: front}, reqs)
			v := run.View.Totals
			t.Logf("%v, front end %v a token: 2 prompts in %.1f s, lanes off %.1f s; %d slices of %.2f s; short P50 %.2f P99 %.2f s", mode, front, on.Seconds(), off.Seconds(),
				v.Slices, v.SliceSeconds/float64(v.Slices), percentile(short, .5).Seconds(), percentile(short, .99).Seconds())
			if on > off*12/5 {
				t.Errorf("%v, front end %v a token: the last of them was ready after %v, with lanes off %v", mode, front, on, off)
			}
		}
	}
}

// An engine that forgets what slices compute is noticed, whether or not it tells what it found.
func TestAnEngineThatForgetsIsNotSliced(t *testing.T) {
	for _, silent := range []bool{false, true} {
		reqs := steady(8, 25_000, 5, 4*time.Minute)
		engine := slow(sim.VLLM, 2048)
		off, _, _ := outcome(t, Options{Engine: engine, Lanes: lane.Options{Off: true}}, reqs)
		on, _, run := outcome(t, Options{Engine: engine, Forgets: true, NoUsage: silent}, reqs)
		v := run.View
		t.Logf("silent %v: %v, lanes off %v; %v (%s), %d slices, %d lost", silent, on, off, v.Way, v.Why, v.Totals.Slices, v.Totals.SlicesLost)
		if v.Way != lane.ByPreempting || v.Distrusted <= 0 || v.Totals.Slices > 20 || on > 2*off {
			t.Errorf("silent %v: ready after %v, with lanes off %v; %+v", silent, on, off, v)
		}
	}
}
