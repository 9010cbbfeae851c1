package lane

import "testing"

// One wait behind another proxy's prefill says nothing of this engine: not of its front end, which would make all slices long, not
// of chunking, and not of how long an abort takes.
func TestATurnBehindTheWorkOfOthersTeachesNothing(t *testing.T) {
	facts := cuts
	facts.ShortBehindLong, facts.UnseenAborts, facts.AbortSeconds = 0, true, 0
	s := tell(t, Options{}, facts)
	s.short(0, 1)
	s.first(6, 1)
	before := s.c.View()
	s.arrive(1000, Arrival{ID: 2, Fresh: 60, Context: 50_000, Shared: true})
	s.first(5600, 2)
	if v := s.c.View(); v.FrontSeconds != before.FrontSeconds || v.SliceSeconds != before.SliceSeconds {
		t.Errorf("the front end took %v s, and is now believed to take %v", before.FrontSeconds, v.FrontSeconds)
	}

	// Beside a long one that goes on.
	facts.Slices, facts.CanPreempt = false, false
	s.c.SetFacts(facts)
	s.long(20_000, 3, 100_000)
	for i := range uint64(4) {
		at := 23_000 + 1000*int64(i)
		s.arrive(at, Arrival{ID: 10 + i, Fresh: 60, Context: 50_000, Shared: true})
		s.first(at+100, 10+i)
	}
	s.first(34_000, 3)
	if v := s.c.View(); v.ShortBehindLong != 0 {
		t.Errorf("short turns are believed to be served beside a long one within %v s", v.ShortBehindLong)
	}

	// And after an abort that does not show.
	facts.CanPreempt = true
	s.c.SetFacts(facts)
	s.long(50_000, 4, 200_000)
	s.arrive(53_000, Arrival{ID: 20, Fresh: 60, Context: 50_000, Shared: true})
	s.until(55_000)
	if v := s.c.View(); v.Preempting != 1 {
		t.Fatalf("not taken back: %v", s.said)
	}
	s.back(55_010, 4, -1)
	s.first(60_000, 20)
	if v := s.c.View(); v.AbortsSeen != 0 {
		t.Errorf("an abort is believed to take %v s", v.AbortSeconds)
	}
}
