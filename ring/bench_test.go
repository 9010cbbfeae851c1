package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// scene is a Placer that knows many sessions, and the next turns of some of them: 512 KB of prompt in chains of about 250
// points, a shared head of 55 KB.
type scene struct {
	p     *Placer
	turns []Turn
}

func newScene(b *testing.B, engines, sessions, sample int) *scene {
	b.Helper()
	s := &scene{p: New(Options{})}
	list := fleet(engines, 40_000_000)
	s.p.SetEngines(0, list)
	shape := begin(7, 55_000, 0, 2000)
	for n := 0; shape.bytes < 505_000; n++ {
		shape.say(uint64(n), 900+n%3*1500)
	}
	head := shape.head
	step := max(1, sessions/sample)
	var d Decision
	for i := range sessions {
		// Most sessions are as short as their head and first message, or the building would take minutes.
		n := head + 1
		if i%step == 0 {
			n = len(shape.chain)
		}
		pr := &prompt.Prompt{Family: prompt.Chat, Chain: make([]prompt.Point, n, n+2), Head: head, First: head + 1}
		copy(pr.Chain, shape.chain[:n])
		for at := head; at < n; at++ {
			pr.Chain[at].Fingerprint = join(uint64(i), uint64(at))
		}
		pr.Bytes, pr.Whole = int(pr.Chain[n-1].Bytes), pr.Chain[n-1].Fingerprint
		t := Turn{Now: int64(i) * 1000, Session: mix(uint64(i) + 1), Prompt: pr}
		ch, err := s.p.Place(&t, &d)
		if err != nil {
			b.Fatal(err)
		}
		ch.FirstToken(t.Now)
		ch.Release(t.Now, Outcome{CachedTokens: -1, PromptTokens: -1})
		if i%step == 0 {
			s.turns = append(s.turns, t)
		}
	}
	rand.Shuffle(len(s.turns), func(i, j int) { s.turns[i], s.turns[j] = s.turns[j], s.turns[i] })
	return s
}

// grow appends a message to a turn's prompt, in place of the one that it appended the last time but one.
func (s *scene) grow(t *Turn, n int) {
	pr := t.Prompt
	last := pr.Chain[len(pr.Chain)-1]
	if len(pr.Chain) == cap(pr.Chain) {
		pr.Chain = pr.Chain[:len(pr.Chain)-2]
		last = pr.Chain[len(pr.Chain)-1]
	}
	pr.Chain = append(pr.Chain, prompt.Point{Fingerprint: join(last.Fingerprint, uint64(n)), Bytes: last.Bytes + 3000, Keep: n%2 == 0})
	pr.Bytes, pr.Whole = int(last.Bytes)+3000, pr.Chain[len(pr.Chain)-1].Fingerprint
}

var sizes = []struct{ engines, sessions int }{{8, 1000}, {4096, 1_000_000}}

// A whole turn: place, first token, release.
func BenchmarkTurnOfKnownSession(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("engines=%d/sessions=%d", size.engines, size.sessions), func(b *testing.B) {
			s := newScene(b, size.engines, size.sessions, 4000)
			var d Decision
			now := int64(size.sessions) * 1000
			moved := 0
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				t := &s.turns[n%len(s.turns)]
				n++
				s.grow(t, n)
				now += 1e6
				t.Now = now
				ch, err := s.p.Place(t, &d)
				if err != nil {
					b.Fatal(err)
				}
				if d.Reason != Bound {
					moved++
				}
				ch.FirstToken(now + 1e6)
				ch.Release(now+2e6, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
			}
			b.ReportMetric(float64(moved)/float64(n), "moved/op")
		})
	}
}

// The first turn of a session that shares a head with all others.
func BenchmarkTurnOfNewSession(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("engines=%d/sessions=%d", size.engines, size.sessions), func(b *testing.B) {
			s := newScene(b, size.engines, size.sessions, 1000)
			var d Decision
			now := int64(size.sessions) * 1000
			pr := *s.turns[0].Prompt
			pr.Chain = pr.Chain[:pr.First]
			pr.Bytes = int(pr.Chain[pr.First-1].Bytes)
			t := Turn{Prompt: &pr}
			b.ReportAllocs()
			for n := uint64(1); b.Loop(); n++ {
				pr.Chain[pr.First-1].Fingerprint = join(n, 5)
				pr.Whole = pr.Chain[pr.First-1].Fingerprint
				now += 1e6
				t.Now, t.Session = now, mix(n+1<<40)
				ch, err := s.p.Place(&t, &d)
				if err != nil {
					b.Fatal(err)
				}
				ch.FirstToken(now + 1e6)
				ch.Release(now+2e6, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
			}
		})
	}
}

// Building the rings of a large fleet, which decisions do not wait for.
func BenchmarkSetEngines(b *testing.B) {
	for _, n := range []int{8, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := fleet(n, 0)
			p := New(Options{})
			for i := 0; b.Loop(); i++ {
				list[0].Weight = float64(1 + i%2)
				p.SetEngines(0, list)
			}
		})
	}
}
