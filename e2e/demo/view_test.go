package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e/workload"
)

func TestTheTableFitsAndIsRedrawnInPlace(t *testing.T) {
	set := small()
	set.engines = 16
	w := set.spec.Write()
	fleet, err := startFleet(set.engines, measure(w, set))
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.close()
	s := newScore("round robin", fleet)
	s.begin(w)
	var out output
	v := view{out: &out, live: true}
	v.show(s)
	table := s.table()
	if len(table) != 16+tableExtra {
		t.Errorf("%d lines", len(table))
	}
	for _, line := range table {
		if n := len([]rune(line)); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	v.show(s)
	if !strings.Contains(out.text.String(), "\x1b[19A") {
		t.Errorf("the second drawing does not go up to the first: %q", out.text.String())
	}
}

func TestBarsAndNumbers(t *testing.T) {
	for share, want := range map[float64]string{-1: "····", 0: "····", 0.5: "██··", 0.28125: "█▏··", 1: "████", 7: "████"} {
		if got := bar(share, 4); got != want {
			t.Errorf("bar of %v: %s", share, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 9_999: "9999", 46_120: "46.1 k", 2_840_000: "2.84 M"} {
		if got := tokens(n); got != want {
			t.Errorf("%d tokens: %s", n, got)
		}
	}
	for d, want := range map[time.Duration]string{18_240 * time.Microsecond: "18.2 ms", 391 * time.Millisecond: "391 ms", 12680 * time.Millisecond: "12.68 s", 200 * time.Second: "200 s"} {
		if got := duration(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}

func TestScoreCountsTurnsThatStay(t *testing.T) {
	s := newScore("x", &fleet{names: []string{"a", "b"}})
	one, other := &workload.Session{}, &workload.Session{}
	for _, turn := range []struct {
		session *workload.Session
		engine  int
	}{{one, 0}, {one, 0}, {other, 1}, {one, 1}, {one, 1}, {other, 1}} {
		s.sent()
		s.answered(turn.session, 0, answered{engine: turn.engine, ttft: time.Millisecond})
	}
	if s.loyal() != 0.75 || s.skew() != 4.0/3 || s.done != 6 || s.inFlight != 0 {
		t.Errorf("loyal %v, skew %v, done %d, in flight %d", s.loyal(), s.skew(), s.done, s.inFlight)
	}
}

func TestBusyNamesWhatIsNotZeroOrNotThere(t *testing.T) {
	page := ""
	for _, name := range gauges {
		page += name + " 0\n"
	}
	if err := busy("# HELP x\n" + page); err != nil {
		t.Error(err)
	}
	err := busy(strings.Replace(strings.Replace(page, gauges[0]+" 0", gauges[0]+" 2", 1), gauges[2], "other", 1))
	if err == nil || err.Error() != gauges[0]+" is 2\n"+gauges[2]+" is not there" {
		t.Error(err)
	}
}
