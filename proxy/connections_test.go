package proxy

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/warmring/warmring/config"
)

// Without traffic, too, no connection to an engine outlives its time.
func TestIdleConnectionsToEnginesAreClosedWithoutTraffic(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	e.toml = "max_idle = \"100ms\""
	p := startProxy(t, "", e)
	if got := p.post("/v1/chat/completions", chat("hi")); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	eventually(t, "the connection to be closed", func() bool { return p.metric(`warmring_engine_connections{engine="a"}`) == "0" })
}

// timeouts.connect bounds probes and whatever else the fleet dials, too.
func TestTheConnectTimeoutHoldsForProbes(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	cfg, err := config.Parse("test.toml", []byte("[[engine]]\nname = \"a\"\nurl = \""+e.URL+"\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Timeouts.Connect = 1 // nanosecond
	s, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := s.fleet.ByName("a").Dial(ctx)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("dialing in a nanosecond: %v", err)
	}
}
