package proxy

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// oneEngine is so many proxies before one engine, of which all know the speed, and a function that takes a short turn of a session at
// the last of them and tells when its first token came.
func oneEngine(t *testing.T, n int) (proxies []*proxyUnderTest, short func() time.Time) {
	e, err := sim.Start(sim.ServerOptions{Options: sim.Options{Mode: sim.VLLM, MaxBatchedTokens: 1000, Cost: sim.Cost{Base: 0.002, Prefill: 1e-4, Decode: 1e-4}}, Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	proxies = startProxies(t, n, map[string]string{"e": "http://" + e.Addr()}, true)
	session := []string{words("warm", 3000)}
	short = func() time.Time {
		began := time.Now()
		ttft, _, _, err := ask(proxies[n-1], chatStream(session...), "X-Session-Id", "short")
		if err != nil {
			t.Fatal(err)
		}
		session = append(session, "answer", words("next", 20))
		return began.Add(ttft)
	}
	for i := range 3 {
		short()
		for _, p := range proxies {
			if _, _, _, err := ask(p, chatStream(words(fmt.Sprint("other", i, p.address), 3000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return proxies, short
}

// prefillsTakenBack is how many prefills were.
func prefillsTakenBack(proxies []*proxyUnderTest) (n uint64) {
	for _, p := range proxies {
		n += p.upstreams()["e"].lanes.view().Totals.Preempted
	}
	return n
}

// A short turn does not wait behind prefills that other proxies have just sent: each of them is asked for as long as it takes, and
// gives way. Nor does the wait make its own proxy believe that the engine has become slow.
func TestAShortTurnIsLetByThePrefillsOfOtherProxies(t *testing.T) {
	for _, others := range []int{1, 2} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			proxies, short := oneEngine(t, others+1)
			asker := proxies[others].cluster.Load()
			lanes := proxies[others].upstreams()["e"].lanes
			before := lanes.view()
			if n := asker.View().Asks.Asked; n != 0 {
				t.Errorf("%d turns asked with nothing in their way", n)
			}
			for round := range 3 - others {
				var long sync.WaitGroup
				firsts, freed, back := make([]time.Time, others), asker.View().Asks.Freed, prefillsTakenBack(proxies)
				for i, p := range proxies[:others] {
					long.Go(func() {
						began := time.Now()
						ttft, _, _, err := ask(p, chatStream(words(fmt.Sprint("long", round, i), 20_000)))
						if err != nil {
							t.Error(err)
						}
						firsts[i] = began.Add(ttft)
					})
				}
				eventually(t, "the prefills to be known", func() bool { return len(asker.Waiters("e", 12_000)) == others })
				at := short()
				long.Wait()
				for i, first := range firsts {
					if got := proxies[i].cluster.Load().View().Asks.Got; got == 0 || !at.Before(first) {
						t.Errorf("round %d: the short turn waited for the prefill of proxy %d, which was asked %d times", round, i, got)
					}
				}
				if prefillsTakenBack(proxies) > back {
					eventually(t, "who asked to know that others gave way", func() bool { return asker.View().Asks.Freed > freed })
				}
			}
			p := &proxies[others].pleas
			p.mu.Lock()
			if len(p.list) != 0 {
				t.Error("a turn that is over still asks")
			}
			p.mu.Unlock()
			for _, p := range proxies[:others] {
				eventually(t, "the turns that are over to count no more", func() bool { return p.upstreams()["e"].lanes.view().Waiting == 0 })
			}
			if v := lanes.view(); v.FrontSeconds > before.FrontSeconds || v.ShortBehindLong > 0 {
				t.Errorf("the engine's front end was believed to take %v s and is now to take %v; short turns beside a long one %v", before.FrontSeconds, v.FrontSeconds, v.ShortBehindLong)
			}
		})
	}
}
