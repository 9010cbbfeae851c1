package ring

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// cluster gives a Placer the state of a large one: 30 other proxies' charges on every engine, summed up as they come from the
// cluster, and 100,000 sessions and milestones that only others have seen, too short to press on any engine's memory: both sides decide alike.
func cluster(b *testing.B, p *Placer, now int64) {
	b.Helper()
	p.Share(1, func() {})
	var list []Binding
	engines := p.Snapshot()
	for i := range uint64(100_000) {
		list = append(list, Binding{
			Key: mix(i + 1<<50), Engine: EngineID(engines[i%uint64(len(engines))].Name), Tokens: 3000, Life: time.Hour, Tail: i%4 == 0,
		})
	}
	p.Import(now, list)
	if got := p.Away().Sessions; got != len(list) {
		b.Fatalf("%d of %d bindings of others", got, len(list))
	}
	report(p)
}

// report is what 30 other proxies have charged; it comes anew some times a second.
func report(p *Placer) {
	var loads []Load
	for _, e := range p.Snapshot() {
		loads = append(loads, Load{Engine: EngineID(e.Name), Waiting: 30 * 400, Queued: 30, Running: 60})
	}
	p.SetRemote(loads)
}

// What other proxies cost a whole turn (place, first token, release) of sessions that are known, of new ones, and of those that one
// session in ten turns makes, side by side: both sorts of turn take place by turns in one
// run, so that whatever else the machine does meets both. The figure is the ratio of the medians; bytes and allocations are of 200 turns.
func BenchmarkTurnWithAndWithoutOtherProxies(b *testing.B) {
	for _, newOfTen := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("new=%d%%", newOfTen*10), func(b *testing.B) {
			sides := [2]*scene{newScene(b, 64, 20_000, 2000), newScene(b, 64, 20_000, 2000)}
			now := int64(20_000) * 1000
			cluster(b, sides[1].p, now)
			var d Decision
			var bindings []Binding
			var loads []Load
			var took [2][]time.Duration
			const batch = 100
			n := 0
			var fresh [2]Turn
			for i, s := range sides {
				pr := *s.turns[0].Prompt
				pr.Chain = append(pr.Chain[:0:0], pr.Chain[:pr.First+20]...)
				pr.Bytes = int(pr.Chain[len(pr.Chain)-1].Bytes)
				fresh[i] = Turn{Prompt: &pr}
			}
			b.ReportAllocs()
			for b.Loop() { // a batch at each
				n++
				now += 1e6
				for at := range sides {
					side := (at + n) % 2
					s := sides[side]
					began := time.Now()
					for k := range batch {
						m := n*batch + k
						t := &s.turns[m%len(s.turns)]
						if m%10 >= newOfTen {
							s.grow(t, m)
						} else {
							t = &fresh[side]
							t.Session = mix(uint64(m) + 1<<40)
							for i := t.Prompt.First - 1; i < len(t.Prompt.Chain); i++ {
								t.Prompt.Chain[i].Fingerprint = join(uint64(m), uint64(i))
							}
						}
						t.Now = now
						ch, err := s.p.Place(t, &d)
						if err != nil {
							b.Fatal(err)
						}
						ch.FirstToken(now + 1e6)
						ch.Release(now+2e6, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
					}
					took[side] = append(took[side], time.Since(began))
					bindings, loads = s.p.Collect(bindings[:0], loads[:0]) // off the path of turns
				}
			}
			var median [2]float64
			for side := range took {
				slices.Sort(took[side])
				median[side] = float64(took[side][len(took[side])/2]) / batch
			}
			b.ReportMetric(median[0], "ns/alone")
			b.ReportMetric(median[1], "ns/shared")
			b.ReportMetric(median[1]/median[0], "shared/alone")
		})
	}
}
