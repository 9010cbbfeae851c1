package lane

import "testing"

// The engine finds nothing again of what slices computed: the request goes whole, and after three such no slices are sent.
func TestAnEngineThatForgetsSlices(t *testing.T) {
	for _, told := range []bool{true, false} {
		s := tell(t, Options{}, cuts)
		whole := func(at int64, id uint64) (slices int) {
			s.short(at, 100+id)
			s.first(at+1, 100+id)
			s.long(at+2, id, 100_000)
			at += 2
			for {
				r := &s.c.all[s.c.byID[id]]
				if !r.slicing.flying {
					s.first(at+12_000, id)
					s.leave(at+13_000, id)
					return slices
				}
				slices++
				at += int64(r.slicing.cut) / 10 // all of it anew
				cached := 0
				if !told {
					cached = -1
				}
				s.sliced(at, id, cached)
			}
		}
		most := map[bool]int{true: 3, false: 4}[told]
		for id := range uint64(3) {
			if n := whole(int64(id)*60_000, id); n != most {
				t.Errorf("told %v: request %d: %d slices before it went whole, want %d", told, id, n, most)
			}
		}
		if v := s.c.View(); v.Way != ByPreempting || v.Distrusted < 500 || v.Totals.SlicesLost != 6 {
			t.Errorf("told %v: %+v", told, v)
		}
		if n := whole(200_000, 7); n != 0 {
			t.Errorf("told %v: %d slices of an engine that forgets them", told, n)
		}
		if n := whole(900_000, 8); n != most {
			t.Errorf("told %v: %d slices after a long time, want %d: it is tried again", told, n, most)
		}
		if v := s.c.View(); v.Distrusted == 0 {
			t.Errorf("told %v: one more that was lost did not suffice", told)
		}
	}
}

// The engine takes no such request: the prompt goes whole, and others are tried.
func TestASliceIsRefused(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 100)
	s.first(10, 100)
	s.long(20, 1, 50_000)
	s.c.Sliced(30*ms, 1, Slice{Prompt: -1, Cached: -1, Failed: true})
	s.note(30)
	s.first(5000, 1)
	s.long(5001, 2, 50_000)
	s.expect("0: 100 go", "20: 1 held", "20: admit 1 to 3840 (quiet)", "30: admit 1 (quiet)", "5001: 2 held", "5001: admit 2 to 3840 (quiet)")
	if v := s.c.View().Totals; v.SlicesRefused != 1 || v.Slices != 0 {
		t.Errorf("%+v", v)
	}
}

// The engine fails at every slice: after three prompts no more are tried, and after ten minutes one is. That a prompt cannot be
// cut says nothing of the engine.
func TestAnEngineThatServesNoSlices(t *testing.T) {
	for _, refused := range []bool{true, false} {
		s := tell(t, Options{}, cuts)
		at, sliced := int64(0), 0
		prompt := func() {
			s.short(at, 100)
			s.first(at+10, 100)
			s.said = nil
			s.long(at+20, 1, 50_000)
			if s.c.all[s.c.byID[1]].slicing.flying {
				sliced++
				s.c.Sliced((at+30)*ms, 1, Slice{Prompt: -1, Cached: -1, Failed: true, Refused: refused})
				s.note(at + 30)
			}
			s.first(at+5000, 1)
			s.leave(at+5001, 1)
			at += 10_000
		}
		for range 6 {
			prompt()
		}
		want := 6
		if refused {
			want = 3
		}
		if sliced != want {
			t.Errorf("refused %v: %d of 6 prompts were tried in slices, want %d", refused, sliced, want)
		}
		at += 600_000
		if prompt(); sliced != want+1 {
			t.Errorf("refused %v: not tried again after ten minutes", refused)
		}
	}
}

// The engine has cached most of what the caller believed to be fresh: slices grow fast, and what is left is believed as before.
func TestMoreIsCachedThanWasBelieved(t *testing.T) {
	s := tell(t, Options{}, cuts)
	at, slices := int64(20), 0
	s.short(0, 100)
	s.first(10, 100)
	s.long(at, 1, 100_000)
	for r := &s.c.all[s.c.byID[1]]; r.slicing.flying; slices++ {
		if slices > 10 {
			t.Fatalf("slice %d is of %d tokens", slices, r.slicing.cut)
		}
		at += 60
		s.sliced(at, 1, r.slicing.cut-r.slicing.cut%16)
	}
	if slices > 4 {
		t.Errorf("%d slices of a prompt that is cached", slices)
	}
	if rate := s.c.View().PrefillRate; rate < 9000 || rate > 16_000 {
		t.Errorf("it taught a rate of %v tokens/s", rate)
	}

	// Where the engine does not tell, one quick slice does not make the next one huge: it may be the last that was cached.
	s = tell(t, Options{}, cuts)
	s.short(0, 100)
	s.first(10, 100)
	s.long(20, 1, 200_000)
	r := &s.c.all[s.c.byID[1]]
	first := r.slicing.cut
	s.sliced(40, 1, -1)
	if next := r.slicing.cut - first; !r.slicing.flying || next < first || next > 5*first/2 {
		t.Errorf("after a slice of %d tokens in 20 ms one of %d more", first, next)
	}
}
