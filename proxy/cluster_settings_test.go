package proxy

import (
	"testing"

	"github.com/warmring/warmring/config"
)

// Proxies that differ in their engines agree in their settings all the same, and are not told otherwise.
func TestSettingsAreComparedApartFromEngines(t *testing.T) {
	hashes := func(toml string) (settings, weights uint32) {
		cfg, err := config.Parse("test.toml", []byte(toml))
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s.settingsHash(), s.weightsHash()
	}
	const one = "[[engine]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n"
	settings, weights := hashes(one)
	if s, w := hashes(one + "[[engine]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\n"); s != settings || w == weights {
		t.Error("another engine is taken for another setting")
	}
	if s, w := hashes(one + "weight = 2.0\n"); s != settings || w == weights {
		t.Error("another weight is taken for another setting, or not seen")
	}
	if s, w := hashes("routing.virtual_nodes = 99\n" + one); s == settings || w != weights {
		t.Error("another ring is not seen")
	}
}
