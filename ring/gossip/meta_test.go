package gossip

import (
	"strings"
	"testing"
)

// What differs is named, and nothing else: members with other engines have other weights, which says nothing about their settings.
func TestOnlyWhatDiffersIsNamed(t *testing.T) {
	own := meta{Oldest: version, Newest: version, Engines: 3, EnginesHash: 7, Program: "x", Traits: Traits{Settings: 8, Secret: 3, Weights: 9, Models: 4, URLs: 5, Places: 6}}
	for _, c := range []struct {
		what   string
		change func(*meta)
		says   []string
	}{
		{"the same", func(m *meta) { m.Program = "y" }, nil},
		{"other engines", func(m *meta) { m.Engines, m.EnginesHash, m.Weights, m.Models, m.Places = 4, 1, 2, 2, 2 }, []string{"another list of engines"}},
		{"other weights", func(m *meta) { m.Weights = 1 }, []string{"other weights"}},
		{"weights that an older version does not tell", func(m *meta) { m.Weights = 0 }, nil},
		{"another secret on an encrypted wire", func(m *meta) { m.Settings = 1 }, []string{"identity.secret"}},
		{"another secret", func(m *meta) { m.Secret = 1 }, []string{"identity.secret differs"}},
		{"other models", func(m *meta) { m.Models = 1 }, []string{"other models"}},
		{"the same URLs under other names", func(m *meta) { m.Places = 1 }, []string{"under other names"}},
		{"other ways to the same engines", func(m *meta) { m.URLs, m.Places = 1, 2 }, nil},
		{"what an older version does not tell", func(m *meta) { m.Traits = Traits{Settings: 8} }, nil},
		{"both", func(m *meta) { m.EnginesHash, m.Settings = 1, 1 }, []string{"another list of engines", "identity.secret"}},
		{"a later version", func(m *meta) { m.Oldest, m.Newest = version+1, version+1 }, []string{"does not read"}},
	} {
		other := own
		c.change(&other)
		sent, err := readMeta(other.bytes())
		if err != nil || sent != other {
			t.Fatalf("%+v became %+v: %v", other, sent, err)
		}
		got := own.differences(&sent)
		if len(got) != len(c.says) {
			t.Errorf("%s: %q", c.what, got)
			continue
		}
		for i, says := range c.says {
			if !strings.Contains(got[i], says) {
				t.Errorf("%s: %q", c.what, got)
			}
		}
	}
	early := own.bytes()
	if m, err := readMeta(early[:len(early)-4*4]); err != nil || m.Traits != (Traits{Settings: 8, Weights: 9}) || m.Program != "x" {
		t.Errorf("without what came after weights: %+v, %v", m, err)
	}
	if m, err := readMeta(early[:len(early)-5*4]); err != nil || m.Traits != (Traits{Settings: 8}) || m.Program != "x" {
		t.Errorf("without weights: %+v, %v", m, err)
	}
}
