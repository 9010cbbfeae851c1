package demo

import (
	"strings"
	"testing"
)

func TestFailedRequestsAreCountedAndNamedAndTheTrafficGoesOn(t *testing.T) {
	set := small()
	set.spec.Sessions = 4
	w := set.spec.Write()
	fleet, err := startFleet(2, measure(w, set))
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.close()
	fleet.servers[1].Close() // nobody is there any more
	s := newScore("round robin", fleet)
	if err := play(t.Context(), w, fleet.roundRobin(), s, newView(&output{}, true, 2)); err != nil {
		t.Fatal(err)
	}
	if s.done != s.total || s.failed != s.total/2 || s.inFlight != 0 || s.live != 0 {
		t.Errorf("%d of %d turns done, %d failed, %d in flight, %d sessions live", s.done, s.total, s.failed, s.inFlight, s.live)
	}
	err = s.failures()
	if err == nil || !strings.Contains(err.Error(), "requests through round robin failed") || strings.Count(err.Error(), "; ") != maxErrors-1 {
		t.Errorf("failures are told as %v", err)
	}
	c := comparison{roundRobin: s, warmring: newScore("warmring", fleet)}
	if verdict, err := c.verify(t.Context(), nil); err == nil || !strings.Contains(verdict, "requests failed") {
		t.Errorf("the verdict is %q, %v", verdict, err)
	}
}
