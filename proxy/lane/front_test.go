package lane

import "testing"

// A front end that was believed to be slow is believed to be quick again as soon as turns show it, beside long prompts too.
func TestAFrontEndThatWasThoughtSlowIsNotForLong(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 1)
	s.first(3000, 1)
	if v := s.c.View(); v.FrontSeconds < 2 {
		t.Fatalf("the front end is believed to take %v s", v.FrontSeconds)
	}
	s.short(3900, 2)
	s.long(4000, 3, 100_000)
	s.first(3910, 2)
	for i := range uint64(10) { // there is always a long one
		at := 6000 + 1000*int64(i)
		s.short(at, 10+i)
		s.first(at+50, 10+i)
	}
	if v := s.c.View(); v.FrontSeconds > 0.2 {
		t.Errorf("after ten turns within 50 ms the front end is believed to take %v s", v.FrontSeconds)
	}
}
