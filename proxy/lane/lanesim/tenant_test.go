package lanesim

import (
	"slices"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// One tenant sends nothing but huge prompts, many at once; the others short turns and now and then a medium prompt. It slows
// itself: what the others wait is bounded by a slice, and by what is computed of their own.
func TestAHugeTenantSlowsItself(t *testing.T) {
	const huge, medium, short = 100_000, 8000, 60
	make := func(hog bool) (reqs []Request) {
		add := func(at time.Duration, tenant uint64, tokens int) {
			reqs = append(reqs, Request{At: at, Tenant: tenant, Prompt: prompt(tokens, uint64(len(reqs)+1)), Fresh: tokens, Output: 20})
		}
		for i := range 10 {
			if hog {
				add(time.Duration(i)*100*time.Millisecond, 1, huge)
			}
		}
		for i := range 100 {
			at := time.Second + time.Duration(i)*time.Second
			add(at, 2+uint64(i%3), short)
			if i%5 == 0 {
				add(at+300*time.Millisecond, 2+uint64(i%3), medium)
			}
		}
		slices.SortStableFunc(reqs, func(x, y Request) int { return int(x.At - y.At) })
		return reqs
	}
	play := func(mode sim.Mode, hog bool, opt Options) (shorts, mediums time.Duration, last time.Duration) {
		reqs := make(hog)
		opt.Engine, opt.Facts = small(mode), lane.Facts{PrefillRate: smallRate}
		run, err := Play(opt, reqs)
		if err != nil {
			t.Fatal(err)
		}
		var s, m []time.Duration
		for i, r := range run.Results {
			switch wait := r.FirstToken - reqs[i].At; reqs[i].Fresh {
			case short:
				s = append(s, wait)
			case medium:
				m = append(m, wait)
			default:
				last = max(last, r.FirstToken)
			}
		}
		return percentile(s, .99), percentile(m, .99), last
	}
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		aloneShort, aloneMedium, _ := play(mode, false, Options{})
		offShort, offMedium, offLast := play(mode, true, Options{Lanes: lane.Options{Off: true}})
		short, medium, last := play(mode, true, Options{})
		_, preemptMedium, _ := play(mode, true, Options{NoSlices: true})
		t.Logf("%v: P99 of the others' short turns %.2f s, of their medium prompts %.2f s; without the huge tenant %.2f and %.2f, lanes off %.1f and %.1f, without slices mediums %.1f; the last huge one after %.0f s, lanes off %.0f",
			mode, short.Seconds(), medium.Seconds(), aloneShort.Seconds(), aloneMedium.Seconds(), offShort.Seconds(), offMedium.Seconds(), preemptMedium.Seconds(), last.Seconds(), offLast.Seconds())
		// A slice may be in the way, of a second here, and once the first huge one whole, until it is taken back.
		if most := aloneShort + 1500*time.Millisecond; short > most {
			t.Errorf("%v: short turns of the others wait %v, at most %v", mode, short, most)
		}
		if most := aloneMedium + 3*time.Second; medium > most {
			t.Errorf("%v: medium prompts of the others wait %v, at most %v", mode, medium, most)
		}
		if last > offLast*5/4 {
			t.Errorf("%v: the huge tenant is done after %v, with lanes off %v", mode, last, offLast)
		}
	}
}
