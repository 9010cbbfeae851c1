package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func randomly(s *simulation) func(*lane) (int, *Charge) {
	r := rand.New(rand.NewPCG(9, 9))
	return func(*lane) (int, *Charge) { return r.IntN(simEngines), nil }
}

func hashed(s *simulation) func(*lane) (int, *Charge) {
	r, _ := ringOf(names(simEngines))
	return func(l *lane) (int, *Charge) { return int(r.owners[r.find(l.key)]), nil }
}

// placed uses a Placer, with or without session keys.
func placed(ids bool, capacity int, placer **Placer) func(s *simulation) func(*lane) (int, *Charge) {
	return func(s *simulation) func(*lane) (int, *Charge) {
		p := New(Options{})
		*placer = p
		p.SetEngines(0, fleet(simEngines, int64(capacity)*blockTokens))
		where := map[uint64]string{}
		return func(l *lane) (int, *Charge) {
			t := Turn{Now: int64(s.now * 1e9), Prompt: l.prompt()}
			if ids {
				t.Session = l.key
			}
			var d Decision
			ch, err := p.Place(&t, &d)
			if err != nil {
				panic(err)
			}
			if old := where[l.key]; old != "" && old != d.Engine {
				s.moves++
			}
			where[l.key] = d.Engine
			return int(d.Engine[1] - '0'), ch
		}
	}
}

func (s *simulation) hitRate() float64 { return float64(s.hits) / float64(s.tokens) }

func (s *simulation) String() string {
	most, sum := 0, 0
	for _, w := range s.work {
		most, sum = max(most, w), sum+w
	}
	return fmt.Sprintf("hit %.1f %% of %.1f %% ideal, %d turns, %.0fM fresh tokens, max/mean work %.2f, %d moves",
		100*s.hitRate(), 100*float64(s.ideal)/float64(s.tokens), s.turns, float64(sum)/1e6, float64(most)*simEngines/float64(sum), s.moves)
}

func TestPolicyOnRecordedSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of traffic")
	}
	sessions := readSessions(t)
	const endless = 1 << 40
	var p *Placer
	free := simulate(sessions, 1, endless, placed(true, endless/blockTokens, &p))
	working := int(free.working / float64(free.turns)) // blocks
	t.Logf("endless memory: %v; %.1fM tokens live", free, float64(working)*blockTokens/1e6)
	for _, memory := range []float64{2, 1, 0.7} {
		capacity := int(float64(working) * memory / simEngines)
		shares := map[string]float64{}
		for _, policy := range []struct {
			name string
			run  func(*simulation) func(*lane) (int, *Charge)
			want float64 // share of the ideal, at twice the memory needed
		}{
			{"random", randomly, 0},
			{"hash by session", hashed, 0},
			{"placer", placed(true, capacity, &p), 0.93},
			{"placer without ids", placed(false, capacity, &p), 0.93},
		} {
			p = nil
			s := simulate(sessions, 1, capacity, policy.run)
			t.Logf("memory %.1f×, %s: %v", memory, policy.name, s)
			if share := float64(s.hits) / float64(s.ideal); memory == 2 && share < policy.want {
				t.Errorf("%s: %.1f %% of the ideal, want %.0f %%", policy.name, 100*share, 100*policy.want)
			}
			shares[policy.name] = float64(s.hits) / float64(s.ideal)
			if p != nil {
				if err := p.recount(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, name := range []string{"placer", "placer without ids"} {
			if shares[name] < shares["hash by session"]-0.02 || shares[name] < shares["random"]+0.2 {
				t.Errorf("memory %.1f×: %s is not better than the baselines: %v", memory, name, shares)
			}
		}
	}
}
