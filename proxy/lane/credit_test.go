package lane

import (
	"strings"
	"testing"
	"time"
)

// Short turns never stop coming: the long one gets its share all the same, and a bounded delay.
func TestTheGuarantee(t *testing.T) {
	s := tell(t, Options{}, quick)
	id := uint64(100)
	s.short(0, id) // somebody always waits
	s.long(0, 1, 50_000)
	ran, at, sent := int64(0), int64(0), int64(-1)
	for at = 1; ran < 5000 && at < 60_000; at++ {
		s.said = nil
		if sent < 0 { // nobody gets a first token while it runs
			s.short(at, id+1)
			s.first(at, id)
			id++
		} else {
			s.until(at)
		}
		for _, line := range s.said {
			switch {
			case strings.Contains(line, "admit 1"):
				sent = at
			case strings.Contains(line, "preempt 1"):
				ran += at - sent
				sent = -1
				s.back(at+1, 1, int(ran*10))
			}
		}
		if sent >= 0 && ran+at-sent >= 5000 {
			break
		}
	}
	if at > 10_500 {
		t.Errorf("5 s of prefill took %d ms of constant contention, want no more than twice as long", at)
	}
	if st, _ := s.c.Status(at*ms, 1); st.ExtraSeconds > 5.1 || st.Preempted < 10 {
		t.Errorf("status %+v, want at most 5 s of delay in many preemptions", st)
	}
}

func TestImmuneInTheEnd(t *testing.T) {
	s := tell(t, Options{MaxExtraDelay: 100 * time.Millisecond}, quick)
	s.long(0, 1, 100_000)
	s.short(1000, 2)
	s.back(1050, 1, 10_000)
	s.until(5000) // 2 never gets a first token
	s.short(5001, 3)
	s.until(9000)
	s.expect("0: 1 go", "1000: 2 go", "1000: preempt 1 (blocking)", "1150: admit 1 (immune)", "5001: 3 go")
	if v := s.c.View(); v.Totals.Immune != 1 {
		t.Errorf("%+v", v.Totals)
	}

	s = tell(t, Options{MaxPreemptions: 1}, quick)
	s.long(0, 1, 100_000)
	s.short(1000, 2)
	s.back(1050, 1, 10_000)
	s.first(1060, 2)
	s.short(3000, 3)
	s.until(9000)
	s.expect("0: 1 go", "1000: 2 go", "1000: preempt 1 (blocking)", "1050: admit 1 (immune)", "3000: 3 go")
}
