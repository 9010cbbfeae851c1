package ring

import (
	"math/rand/v2"
	"testing"
	"time"
)

// rush lets new sessions arrive through several proxies, 2 ms apart, while every engine but e3 works off two long prefills that another
// proxy has sent there, and returns the fresh tokens that they bring to e3 and the most that any engine has in the end. If
// they are not talking they hear nothing of each other's charges after that.
func rush(t *testing.T, count int, delay time.Duration, talking bool, seed uint64) (onIdle, most int64) {
	const arrivals = 96
	engines := fleet(8, 4_000_000)
	ps := newProxies(t, count+1, delay, Options{}, engines)
	busy := ps.all[count]
	busy.now = ps.now
	for _, e := range engines {
		if e.Name != "e3" {
			for range 2 {
				busy.start(0, begin(99, 1000, uint64(EngineID(e.Name)), 35_000), others(8, e.Name)...)
			}
		}
	}
	ps.exchange()
	ps.sleep(2 * delay) // all have heard of it
	before := map[string]int64{}
	for _, e := range busy.Snapshot() {
		before[e.Name] = e.Waiting
	}
	own := map[string]int64{}
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range uint64(arrivals) {
		w := ps.all[random.IntN(count)]
		w.now = ps.now
		ch, d := w.start(seed<<16|i+1000, begin(i, 1000, i+seed<<16, 20_000))
		own[d.Engine] += int64(ch.fresh)
		if talking {
			ps.sleep(2 * time.Millisecond)
		} else {
			ps.now += int64(2 * time.Millisecond)
		}
	}
	for name, tokens := range before {
		most = max(most, tokens+own[name])
	}
	return own["e3"], most
}

// N proxies that see one idle engine must not all pick it: what each charges there is known to the others 10 ms later, and counts like
// their own. The same proxies fail the test when they do not hear of each other's charges: that is what it measures.
func TestNoHerdOnTheIdleEngine(t *testing.T) {
	const count = 8
	var alone, talking, silent, aloneMost, talkingMost, silentMost int64
	for seed := range uint64(3) {
		a, am := rush(t, 1, 10*time.Millisecond, true, seed)
		b, bm := rush(t, count, 10*time.Millisecond, true, seed)
		c, cm := rush(t, count, 10*time.Millisecond, false, seed)
		alone, talking, silent = alone+a, talking+b, silent+c
		aloneMost, talkingMost, silentMost = max(aloneMost, am), max(talkingMost, bm), max(silentMost, cm)
	}
	t.Logf("fresh tokens on the idle engine: %d with one proxy, %d with %d that talk, %d with %d that do not", alone/3, talking/3, count, silent/3, count)
	t.Logf("the most on any engine: %d, %d, %d", aloneMost, talkingMost, silentMost)
	within := func(idle, most int64) bool { // a tenth and one arrival of 6,000 tokens more than with one proxy
		return idle <= alone+alone/10+3*6000 && most <= aloneMost+aloneMost/10+6000
	}
	if !within(talking, talkingMost) {
		t.Errorf("%d proxies bring %d fresh tokens to the idle engine, one brings %d; the most on any engine is %d, with one %d", count, talking/3, alone/3, talkingMost, aloneMost)
	}
	if within(silent, silentMost) {
		t.Errorf("proxies that do not hear of each other's charges pass as well (%d tokens, at most %d): the test tests nothing", silent/3, silentMost)
	}
}
