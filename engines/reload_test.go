package engines

import (
	"strings"
	"testing"
	"time"
)

// replan puts another list of engines in force.
func (w *watched) replan(opt FleetOptions, specs ...Spec) {
	w.t.Helper()
	plan, err := w.Plan(specs, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	plan.Apply()
}

const listTwo = `{"object":"list","data":[{"id":"tiny","object":"model"},{"id":"huge","object":"model"}]}`

// C215, C217: what is known of an engine that stays is kept, the operator's drain included, whatever else is said about it;
// one that is new is probed, one that is gone is not, and nobody hears of it any more.
func TestAnotherListKeepsWhatIsKnownOfThoseThatStay(t *testing.T) {
	a, b, c := newFake(t).vllm(t), newFake(t).plain(), newFake(t).plain()
	opt := FleetOptions{ProbeInterval: quick}
	w := watch(t, opt, Spec{Name: "a", URL: a.URL}, Spec{Name: "b", URL: b.URL})
	w.untilState("a", Ready)
	w.untilState("b", Ready)
	if err := w.Drain("a"); err != nil {
		t.Fatal(err)
	}
	old, gone := w.ByName("a"), w.ByName("b")
	w.replan(opt, Spec{Name: "c", URL: c.URL}, Spec{Name: "a", URL: a.URL, Weight: 3, KVTokens: 5})
	e := w.ByName("a")
	if e == old || !e.SameAs(old) || e.Weight != 3 || old.Weight != 1 || e.State() != Draining || e.DetectedKind() != VLLM || e.KVTokens() != 524288 {
		t.Errorf("%+v", e.Status())
	}
	if w.ByName("b") != nil || len(w.Engines()) != 2 || w.Engines()[0].Name != "c" {
		t.Errorf("%v", w.Engines())
	}
	w.untilState("c", Ready)
	asked, heard := b.count(""), 0
	w.with(func() { heard = len(w.heard) })
	rounds := a.count("/health")
	w.until("some more rounds", func() bool { return a.count("/health") > rounds+3 })
	if n := b.count("") - asked; n > 1 { // one may have been on its way
		t.Errorf("the engine that is gone was asked %d times more", n)
	}
	gone.Report(time.Now(), Unreachable) // a request that was under way
	w.with(func() {
		for _, h := range w.heard[heard:] {
			if h.name == "b" {
				t.Errorf("told of the engine that is gone: %+v", h)
			}
		}
	})
	if f := w.replanned(opt, Spec{Name: "a", URL: a.URL, Weight: 3, KVTokens: 5}); f != e {
		t.Error("an engine of which nothing new was said is another one")
	}
}

func (w *watched) with(look func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	look()
}

func (w *watched) replanned(opt FleetOptions, spec Spec) *Engine {
	w.replan(opt, spec)
	return w.ByName(spec.Name)
}

// Under another address it is another engine: nothing is known of it but that the operator wants it drained.
func TestAnotherAddressIsAnotherEngine(t *testing.T) {
	a, b := newFake(t).vllm(t), newFake(t).plain()
	opt := FleetOptions{ProbeInterval: quick}
	w := watch(t, opt, Spec{Name: "a", URL: a.URL})
	w.untilState("a", Ready)
	if err := w.Drain("a"); err != nil {
		t.Fatal(err)
	}
	old := w.ByName("a")
	w.replan(opt, Spec{Name: "a", URL: b.URL})
	if e := w.ByName("a"); e.SameAs(old) || e.DetectedKind() == VLLM {
		t.Errorf("%+v", e.Status())
	}
	w.untilState("a", Draining)
	w.until("it to be found out anew", func() bool { return w.ByName("a").DetectedKind() == Custom })
}

// What a new description excludes is out at once, what it opens comes with the next reading, which is soon; aliases follow.
func TestModelsFollowANewDescription(t *testing.T) {
	a := newFake(t).set("/health", 200, "").set("/v1/models", 200, listTwo)
	long := FleetOptions{ProbeInterval: time.Hour, Aliases: map[string]string{"nick": "tiny"}}
	w := watch(t, long, Spec{Name: "a", URL: a.URL})
	w.untilState("a", Ready)
	w.replan(FleetOptions{ProbeInterval: time.Hour, Aliases: map[string]string{"nack": "huge"}}, Spec{Name: "a", URL: a.URL, Models: []string{"huge"}})
	if w.KnownModel("tiny") || !w.KnownModel("huge") || strings.Contains(string(w.ModelsJSON()), "nick") || !strings.Contains(string(w.ModelsJSON()), "nack") {
		t.Errorf("%s", w.ModelsJSON())
	}
	w.replan(long, Spec{Name: "a", URL: a.URL})
	w.until("the other model to be back", func() bool { return w.KnownModel("tiny") && w.KnownModel("huge") })
}

// A new key and a shorter interval do not wait for the probe that was due under the old ones.
func TestProbingFollowsANewDescription(t *testing.T) {
	a := newFake(t).plain()
	a.with(func() { a.key = "k1" })
	w := watch(t, FleetOptions{ProbeInterval: time.Hour}, Spec{Name: "a", URL: a.URL, APIKey: "k0"})
	w.untilState("a", Unauthorized)
	w.replan(FleetOptions{ProbeInterval: time.Hour}, Spec{Name: "a", URL: a.URL, APIKey: "k1"})
	w.untilState("a", Ready)
	w.replan(FleetOptions{ProbeInterval: quick}, Spec{Name: "a", URL: a.URL, APIKey: "k1"})
	before := a.count("/health")
	w.until("probes every 50 ms", func() bool { return a.count("/health") > before+3 })
}

// A list that cannot be is refused before anything of it is in force.
func TestABadListChangesNothing(t *testing.T) {
	w := watch(t, FleetOptions{}, Spec{Name: "a", URL: newFake(t).plain().URL})
	was := w.ByName("a")
	for name, specs := range map[string][]Spec{
		"empty": nil, "a name twice": {{Name: "a", URL: "http://h:1"}, {Name: "a", URL: "http://h:2"}}, "a bad URL": {{Name: "b", URL: "http://h:1"}, {URL: "nonsense"}},
		"no such file": {{URL: "https://h", CAFile: "/nowhere.pem"}},
	} {
		if _, err := w.Plan(specs, FleetOptions{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if len(w.Engines()) != 1 || w.ByName("a") != was {
		t.Error("the list has changed")
	}
}
