package gossip

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// named starts a member whose only name to join leads where dns says at the time.
func named(t *testing.T, dns *atomic.Pointer[[]string], own bool) *Cluster {
	t.Helper()
	c, err := create(Options{Node: "p", Bind: "127.0.0.1:0", Engines: engineNames(2), Placer: newPlacer(engineNames(2)), Now: clock, Join: []string{"proxies:1"}, Rejoin: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if own {
		dns.Store(&[]string{c.Address()})
	}
	c.lookup = func(context.Context, string) ([]string, error) { return slices.Clone(*dns.Load()), nil }
	t.Cleanup(func() { _ = c.Close() })
	c.begin()
	return c
}

// Two proxies begin while the name leads each only to itself, as it does until DNS has heard of both. They find each other long before the next
// regular look, and say until then that they are alone.
func TestProxiesThatBeginBeforeTheirNameIsKnownFindEachOther(t *testing.T) {
	t.Parallel()
	var names [2]atomic.Pointer[[]string]
	var all [2]*Cluster
	for i := range all {
		all[i] = named(t, &names[i], true)
		<-all[i].Ready()
		if v := all[i].View(); !v.Lonely || !strings.Contains(v.LastJoinError, "own") {
			t.Errorf("alone, and does not say so: lonely %v, %q", v.Lonely, v.LastJoinError)
		}
	}
	both := []string{all[0].Address(), all[1].Address()}
	names[0].Store(&both)
	names[1].Store(&both)
	eventually(t, "each other", func() bool { return all[0].members.count() == 1 && all[1].members.count() == 1 })
	eventually(t, "the end of loneliness", func() bool { return !all[0].View().Lonely && !all[1].View().Lonely })
}

// At first names are looked up every second or two by one that is alone, later more seldom, and by one in company as configured.
func TestOneAloneLooksNamesUpMoreOften(t *testing.T) {
	for _, c := range []struct{ alone, rejoin, want time.Duration }{
		{0, 30 * time.Second, 1500 * time.Millisecond},
		{time.Minute, 30 * time.Second, 1500 * time.Millisecond},
		{4 * time.Minute, 30 * time.Second, 6 * time.Second},
		{time.Hour, 30 * time.Second, 30 * time.Second},
		{0, time.Second, time.Second},
	} {
		if got := lookPause(c.alone, c.rejoin); got != c.want {
			t.Errorf("alone for %v: looks again after %v, want %v", c.alone, got, c.want)
		}
	}
}
