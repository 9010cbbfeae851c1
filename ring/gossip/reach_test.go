package gossip

import (
	"strings"
	"testing"
)

func TestWhatCanBeReachedIsTold(t *testing.T) {
	t.Parallel()
	p := startMember(t, engineNames(1), nil, nil)
	lines, ok := Reach(t.Context(), []string{p.Address()})
	if !ok || len(lines) != 1 || !strings.Contains(lines[0], "1 of 1") {
		t.Errorf("%v %q", ok, lines)
	}
	lines, ok = Reach(t.Context(), []string{"127.0.0.1:1", "no-such-host.invalid:7946"})
	if ok || len(lines) != 2 || !strings.Contains(lines[0], "nobody at 127.0.0.1:1") || !strings.Contains(lines[1], "cannot be looked up") {
		t.Errorf("%v %q", ok, lines)
	}
}
