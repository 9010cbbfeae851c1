package lane

import (
	"testing"
	"time"
)

// What an abort of vLLM takes is not seen, only that the connection was closed. The short turn for which it was ordered gets
// its first token when the engine has stopped, and after its own work: the minimum run of two steps follows from that.
func TestTheMinimumRunWhereAbortsAreNotSeen(t *testing.T) {
	f := Facts{PrefillRate: 2000, CanPreempt: true, KeepsStep: true, UnseenAborts: true, ShortBehindLong: 60}
	s := tell(t, Options{}, f)
	s.long(0, 1, 100_000)
	s.short(3000, 100)
	s.back(3001, 1, -1) // closed at once
	s.first(4530, 100)  // after the step of 1.5 s, and 30 ms of its own
	s.short(4540, 101)  // right after the long one was sent again
	s.until(20_000)     // taken back within its second step, not in its first
	if got := s.c.View(); got.StepSeconds < 1.4 || got.StepSeconds > 1.5 {
		t.Errorf("learned a step of %v s, want 1.5", got.StepSeconds)
	}
	s.expect("0: 1 go", "3000: 100 go", "3000: preempt 1 (blocking)", "4530: admit 1 (quiet)", "4540: 101 go", "6210: preempt 1 (blocking)")
}

// A first token that comes when the long one is with the engine again says nothing of the abort before; that none came until
// then says that it took this long at least.
func TestAbortsThatOutlastTheCredit(t *testing.T) {
	f := quick
	f.UnseenAborts, f.AbortSeconds, f.StepSeconds = true, 0, 0
	s := tell(t, Options{}, f)
	s.long(0, 1, 100_000)
	s.short(3000, 100)
	s.back(3001, 1, -1)
	s.until(6000) // the credit of 1 s is used up and it goes on
	s.first(9000, 100)
	s.expect("0: 1 go", "3000: 100 go", "3000: preempt 1 (blocking)", "4001: admit 1 (guaranteed)")
	if v := s.c.View(); v.AbortsSeen != 1 || v.StepSeconds < 1 || v.StepSeconds > 1.01 {
		t.Errorf("learned %+v, want a second at least", v)
	}
}

// The engine has kept nothing of a run, as its answer shows: that is delay, and the request is soon immune.
func TestRunsThatLeaveNothingBehindAreDelay(t *testing.T) {
	for _, c := range []struct {
		what   string
		done   func(run int) int
		immune bool
	}{
		{"nothing is kept", func(int) int { return 0 }, true},
		{"all is kept", func(run int) int { return min(run*75_000, 190_000) }, false},
		{"nobody knows", func(int) int { return -1 }, false},
	} {
		s := tell(t, Options{MaxExtraDelay: 4 * time.Second}, quick)
		s.long(0, 1, 200_000)
		at := int64(0)
		for run := 1; run <= 2; run++ {
			at += 1000
			s.short(at, uint64(100+run))
			s.until(at + 5900)
			if s.c.View().Preempting == 0 {
				break
			}
			s.back(at+5901, 1, c.done(run))
			s.first(at+5910, uint64(100+run))
			at += 5910
		}
		if st, _ := s.c.Status(at*ms, 1); st.Immune != c.immune {
			t.Errorf("%s: %+v, want immune %v", c.what, st, c.immune)
		}
	}
}
