package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// C154: 32 long sessions at a time on four engines, for ten minutes in which sessions end and others begin in their place. The engines
// have about as many at the end as at the start: what was placed long ago does not pull the new ones after it.
func TestLongSessionsDoNotPileUpOverTime(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named %v", named), func(t *testing.T) {
			const slots, engines, last = 32, 4, 10 * time.Minute
			type session struct {
				id, user uint64
				talk     *talk
				turns    int // that are left
				engine   string
				charge   *Charge
				next     int64 // when something happens:
				first    bool  // its first token, else the answer's end, or its next turn if it has no charge
			}
			w := newWorld(t, Options{}, fleet(engines, 1_000_000))
			random := rand.New(rand.NewPCG(3, 4))
			seconds := func(from, to int) int64 {
				return int64(time.Second)*int64(from) + random.Int64N(int64(time.Second)*int64(to-from))
			}
			began := uint64(0)
			fresh := func(s *session) {
				began++
				*s = session{user: began, talk: begin(7, 24_000, 1000+began, 4000+random.IntN(40_000)), turns: 5 + random.IntN(40), next: w.now}
				if named {
					s.id = mix(began)
				}
			}
			all := make([]session, slots)
			for i := range all {
				fresh(&all[i])
				all[i].next += seconds(0, 20)
			}
			free := map[string]int64{} // when an engine's prefills are done
			spread := func() (least, most int, counts map[string]int) {
				counts = map[string]int{}
				for i := range all {
					counts[all[i].engine]++
				}
				least = slots
				for i := range engines {
					n := counts[fmt.Sprint("e", i)]
					least, most = min(least, n), max(most, n)
				}
				return least, most, counts
			}
			begin := w.now
			sampled := begin + int64(30*time.Second)
			var at []string
			worst := 0.0
			for w.now < begin+int64(last) {
				s := &all[0]
				for i := range all {
					if all[i].next < s.next {
						s = &all[i]
					}
				}
				w.now = s.next
				switch {
				case s.charge == nil:
					ch, d := w.start(s.id, s.talk)
					s.charge, s.engine, s.first = ch, d.Engine, true
					free[d.Engine] = max(free[d.Engine], w.now) + int64(ch.fresh)*int64(time.Second)/8000
					s.next = free[d.Engine]
				case s.first:
					s.charge.FirstToken(w.now)
					s.first = false
					s.next = w.now + seconds(1, 8)
				default:
					s.charge.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Prefilled: true})
					s.charge = nil
					if s.turns--; s.turns == 0 {
						fresh(s)
					} else {
						s.talk.say(began<<20|uint64(s.turns)<<40|s.user, 1000+random.IntN(12_000))
					}
					s.next = w.now + seconds(1, 6)
				}
				for ; sampled <= w.now; sampled += int64(30 * time.Second) {
					least, most, _ := spread()
					at = append(at, fmt.Sprint(least, "–", most))
					worst = max(worst, float64(most)/float64(max(least, 1)))
				}
			}
			least, most, counts := spread()
			t.Logf("%d sessions; on the least and the most of %d engines every 30 s: %v", began, engines, at)
			if most > 2*least {
				t.Errorf("after %v: %v", last, counts)
			}
			if worst > 3 { // a moment, with about eight on each
				t.Errorf("once an engine had %.1f times the sessions of another: %v", worst, at)
			}
			for i := range all {
				if all[i].charge != nil {
					all[i].charge.Release(w.now, Outcome{})
				}
			}
			w.settled()
		})
	}
}
