package lane

import "testing"

// llama.cpp does not say when it has stopped, and may compute on for seconds: the short turn's first token shows it.
func TestUnseenAborts(t *testing.T) {
	f := Facts{PrefillRate: 1000, CanPreempt: true, KeepsStep: true, UnseenAborts: true, ShortBehindLong: 60}
	s := tell(t, Options{}, f)
	s.long(0, 1, 100_000)
	s.short(10_000, 2)
	s.back(10_001, 1, -1) // the connection is closed
	s.first(12_000, 2)
	if v := s.c.View(); v.AbortSeconds < 1.9 || v.AbortSeconds > 2 || v.StepSeconds != v.AbortSeconds {
		t.Errorf("an abort takes %v s, a step %v s", v.AbortSeconds, v.StepSeconds)
	}
}

// SGLang computes nothing but a long prefill while it runs: answers that have begun stand still. So a long prompt that was
// taken back for a short turn lets that say something before it is sent again, but not for long.
func TestAShortTurnMaySaySomethingBeforeALongPromptGoesOn(t *testing.T) {
	f := quick
	f.FreezesDecodes = true
	s := tell(t, Options{}, f)
	s.long(0, 1, 100_000)
	s.short(1000, 2)
	s.back(1050, 1, 10_000)
	s.first(1060, 2)
	s.leave(1200, 2) // all said
	s.expect("0: 1 go", "1000: 2 go", "1000: preempt 1 (blocking)", "1200: admit 1 (quiet)")
	s.short(3000, 3)
	s.back(3050, 1, 30_000)
	s.first(3060, 3) // it has more to say
	s.until(5000)
	s.expect("3000: 3 go", "3000: preempt 1 (blocking)", "3310: admit 1 (quiet)")
	s.long(5010, 4, 50_000)
	s.first(9000, 1) // one that comes new is not held for answers
	s.expect("5010: 4 held", "9000: admit 4 (quiet)")
}
