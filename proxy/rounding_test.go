package proxy

import (
	"log/slog"
	"testing"
	"time"

	"github.com/warmring/warmring/proxy/lane"
)

// Times of the lanes are logged and explained to the microsecond, as all others are.
func TestLaneTimesAreRounded(t *testing.T) {
	st := lane.Status{Class: lane.Long, State: "decoding", HeldSeconds: 0.1 + 0.2, ExtraSeconds: 1.0 / 3}
	r := &request{lane: lanePart{status: st}}
	for _, a := range r.laneAttrs([]slog.Attr{}) {
		switch v := a.Value; a.Key {
		case "held_ms":
			if v.Float64() != 300 {
				t.Errorf("held_ms=%v", v)
			}
		case "extra_ms":
			if v.Float64() != 333.333 {
				t.Errorf("extra_ms=%v", v)
			}
		}
	}
	if x := (&recentRequest{lane: st, at: time.Now()}).explanation(); x.HeldMS != 300 || x.ExtraMS != 333.333 {
		t.Errorf("explained as %v and %v", x.HeldMS, x.ExtraMS)
	}
}
