package proxy

import (
	"regexp"
	"testing"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/ring/gossip"
)

// What is another in one proxy's configuration is shown for what it is, and nothing else with it.
func TestEachDifferenceOfConfigurationsIsToldApart(t *testing.T) {
	traits := func(toml string) gossip.Traits {
		cfg, err := config.Parse("test.toml", []byte(toml))
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s.traits()
	}
	const (
		a    = "[[engine]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n"
		b    = "[[engine]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\n"
		swap = "[[engine]]\nname = \"b\"\nurl = \"http://127.0.0.1:1\"\n[[engine]]\nname = \"a\"\nurl = \"http://127.0.0.1:2\"\n"
	)
	own := traits(a + b)
	for _, c := range []struct {
		what, toml                              string
		settings, weights, models, urls, places bool
	}{
		{what: "the same in another order", toml: b + a},
		{what: "another ring", toml: "routing.virtual_nodes = 99\n" + a + b, settings: true},
		{what: "another engine", toml: a, weights: true, models: true, urls: true, places: true},
		{what: "another weight", toml: a + "weight = 2.0\n" + b, weights: true},
		{what: "another model", toml: a + "models = [\"m\"]\n" + b, models: true},
		{what: "another alias", toml: "models.alias = {m = \"real/m\"}\n" + a + b, models: true},
		{what: "swapped URLs", toml: swap, places: true},
	} {
		got := traits(c.toml)
		for field, differs := range map[string][2]bool{
			"settings": {got.Settings != own.Settings, c.settings}, "weights": {got.Weights != own.Weights, c.weights},
			"models": {got.Models != own.Models, c.models}, "URLs": {got.URLs != own.URLs, c.urls}, "places": {got.Places != own.Places, c.places},
		} {
			if differs[0] != differs[1] {
				t.Errorf("%s: %s: differs: %v", c.what, field, differs[0])
			}
		}
	}
}

// Where who listens could try secrets, proxies compare too little of them to confirm a guess, and enough to see a mistake.
func TestSecretsAreComparedOnAnOpenWireWithoutTellingThem(t *testing.T) {
	none, one := printSecret(""), printSecret("a secret of sixteen")
	if none == 0 || one == 0 || none == one || one == printSecret("another of sixteen or so") || one != printSecret("a secret of sixteen") {
		t.Error("secrets are not told apart, or not known again")
	}
	if one>>8 != 2 {
		t.Errorf("%#x: more than eight bits of it are told", one)
	}
}

// Two proxies without cluster keys say that their secrets differ, and two with the same say nothing.
func TestProxiesThatDifferInTheSecretSaySo(t *testing.T) {
	e, openWire := newFakeEngine(t, "a", nil), regexp.MustCompile("keys = .*\n")
	for _, c := range []struct{ second, says string }{{"different-secret-one", ""}, {"different-secret-two", "identity.secret differs: sessions are not recognised across"}} {
		ports := []int{freePort(t), freePort(t)}
		var both []*proxyUnderTest
		for i, secret := range []string{"different-secret-one", c.second} {
			cluster := openWire.ReplaceAllString(clusterSection(ports[i], ports...), "")
			both = append(both, startProxyTOML(t, fleetFile("identity.secret = \""+secret+"\"\n", e)+cluster))
		}
		for _, p := range both {
			eventually(t, "the other", func() bool { return p.cluster.Load() != nil && len(p.cluster.Load().View().Members) == 1 })
			differs := p.cluster.Load().View().Members[0].Differs
			if c.says == "" && len(differs) != 0 || c.says != "" && (len(differs) != 1 || differs[0] != c.says) {
				t.Errorf("%q, not %q", differs, c.says)
			}
		}
		for _, p := range both {
			p.shutdown()
		}
	}
}
