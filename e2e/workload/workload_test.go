package workload_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/e2e/workload"
	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/ring/prompt"
)

// drawSpec is any small workload.
func drawSpec(t *rapid.T) workload.Spec {
	s := workload.Spec{
		Seed:     rapid.Uint64().Draw(t, "seed"),
		Sessions: rapid.IntRange(1, 12).Draw(t, "sessions"),
		Turns:    workload.Range{Min: 1, Max: rapid.IntRange(1, 8).Draw(t, "turns")},
		Head:     workload.Range{Min: 60, Max: 300}, First: workload.Range{Min: 1, Max: 200}, More: workload.Range{Min: 1, Max: 90},
		Huge: workload.Range{Min: 300, Max: 500},
	}
	s.Forks = rapid.IntRange(-1, s.Sessions).Draw(t, "forks")
	s.SubAgents = rapid.IntRange(-1, s.Sessions).Draw(t, "spawning")
	return s
}

func chainOf(t interface{ Fatalf(string, ...any) }, r workload.Request) []prompt.Point {
	var p prompt.Prompt
	p.Scan(r.Body, r.Family)
	if p.Fallback != "" {
		t.Fatalf("the prompt cannot be read: %s\n%s", p.Fallback, r.Body)
	}
	p.Fingerprint(r.Body, 1)
	return p.Chain
}

func TestEveryBodyIsJSONThatStreamsAndNamesTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		spec.Clients = append(workload.Clients(), workload.Client{Name: "text", Family: prompt.Completions, Named: workload.CacheKey})
		for _, s := range spec.Write().Sessions {
			for n := range s.Turns {
				r := s.Request(n)
				var body struct {
					Model  string
					Stream bool
				}
				if err := json.Unmarshal(r.Body, &body); err != nil {
					t.Fatalf("turn %d of a %s session: %v\n%s", n, s.Client.Name, err, r.Body)
				}
				if body.Model != "sim" || !body.Stream {
					t.Fatalf("model %q, stream %v", body.Model, body.Stream)
				}
			}
		}
	})
}

func TestEachTurnExtendsTheOneBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, s := range drawSpec(t).Write().Sessions {
			var before []prompt.Point
			for n := range s.Turns {
				chain := chainOf(t, s.Request(n))
				if n > 0 && (!extends(before, chain) || s.Tokens(n) <= s.Tokens(n-1)) {
					t.Fatalf("turn %d of a %s session does not extend turn %d", n, s.Client.Name, n-1)
				}
				before = chain
			}
		}
	})
}

// extends tells whether the points of a, but for the last, which ends its prompt, are points of b.
func extends(a, b []prompt.Point) bool {
	has := map[uint64]bool{}
	for _, p := range b {
		has[p.Fingerprint] = true
	}
	for _, p := range a {
		if !has[p.Fingerprint] {
			return false
		}
	}
	return true
}

func TestAForkSharesItsParentsPromptAndASubAgentDoesNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, s := range drawSpec(t).Write().Sessions {
			if s.Parent == nil {
				continue
			}
			if s.Parent.Number >= s.Number || s.From >= len(s.Parent.Turns) {
				t.Fatalf("child %d of %d leaves from turn %d of %d", s.Number, s.Parent.Number, s.From, len(s.Parent.Turns))
			}
			left, first := chainOf(t, s.Parent.Request(s.From)), chainOf(t, s.Request(0))
			switch s.Kind {
			case workload.Fork:
				if !extends(left, first) {
					t.Fatalf("a fork does not extend the turn that it leaves from")
				}
				// An agent's call is taken along with its result, which may be all that the parent's next turn adds.
				if next := s.From + 2; next < len(s.Parent.Turns) && extends(chainOf(t, s.Parent.Request(next)), first) {
					t.Fatalf("a fork goes on like its parent")
				}
			case workload.SubAgent:
				if left[0].Fingerprint == first[0].Fingerprint {
					t.Fatalf("a sub-agent begins like its parent")
				}
			}
		}
	})
}

func TestTheSameSeedWritesTheSameAndASaltSharesNothing(t *testing.T) {
	spec := workload.Spec{Seed: 3, Sessions: 9}
	a, b := spec.Write(), spec.Write()
	spec.Salt = "again "
	salted := spec.Write()
	if a.Totals().Requests != salted.Totals().Requests {
		t.Fatal("a salt changes how much there is to do")
	}
	var starts [2]map[uint64]bool
	for i, w := range []*workload.Workload{a, salted} {
		starts[i] = map[uint64]bool{}
		for _, s := range w.Sessions {
			starts[i][chainOf(t, s.Request(0))[0].Fingerprint] = true
		}
	}
	for start := range starts[0] {
		if starts[1][start] {
			t.Error("two salts share the beginning of a prompt")
		}
	}
	for i, s := range a.Sessions {
		for n := range s.Turns {
			if !bytes.Equal(s.Request(n).Body, b.Sessions[i].Request(n).Body) {
				t.Fatalf("turn %d of session %d is written differently the second time", n, i)
			}
		}
		if s.ID == salted.Sessions[i].ID {
			t.Errorf("session %d has the same id under another salt", i)
		}
	}
}

// The ideal is held against a simulated engine with memory without end that gets everything.
func TestIdealIsWhatOneEngineWithMemoryEnoughHits(t *testing.T) {
	w := workload.Spec{Seed: 11, Sessions: 10}.Write()
	engine, err := sim.Start(sim.ServerOptions{Options: sim.Options{KVTokens: 8 << 20}, Speed: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, s := range w.Sessions { // parents come before their children
		for n := range s.Turns {
			r := s.Request(n)
			req, err := http.NewRequest("POST", engine.URL()+r.Path, bytes.NewReader(r.Body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = r.Header
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || !strings.Contains(string(answer), "data:") {
				t.Fatalf("%s turn %d: %d %v %.300s", s.Client.Name, n, resp.StatusCode, err, answer)
			}
		}
	}
	totals, stats := w.Totals(), engine.Engine().Stats()
	hit := float64(stats.Hit) / float64(stats.Queried)
	t.Logf("%d requests, %d prompt tokens (engine: %d), ideal %.2f %%, engine %.2f %%", totals.Requests, totals.Prompt, stats.Queried, 100*totals.Ideal(), 100*hit)
	if d := totals.Ideal() - hit; d < -0.003 || d > 0.005 {
		t.Errorf("ideal %.4f, the engine hit %.4f", totals.Ideal(), hit)
	}
	if d := float64(totals.Prompt)/float64(stats.Queried) - 1; d < -0.01 || d > 0.01 {
		t.Errorf("counted %d prompt tokens, the engine %d", totals.Prompt, stats.Queried)
	}
}
