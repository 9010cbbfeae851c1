package lane

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// story drives a Controller by hand. Times are ms, and every answer and action is noted in words.
type story struct {
	t    *testing.T
	c    *Controller
	said []string
}

// quick is an engine with 10,000 fresh tokens/s in steps of 100 ms that keeps what it computed and lets nobody join.
var quick = Facts{PrefillRate: 10_000, StepSeconds: 0.1, AbortSeconds: 0.05, CanPreempt: true, KeepsStep: true, ShortBehindLong: 60}

func tell(t *testing.T, opt Options, f Facts) *story {
	s := &story{t: t, c: New(opt)}
	s.c.SetFacts(f)
	return s
}

func (s *story) note(at int64) {
	for _, a := range s.c.Actions(nil) {
		if a.Tokens > 0 {
			s.said = append(s.said, fmt.Sprintf("%d: %v %d to %d (%v)", at, a.Kind, a.ID, a.Tokens, a.Reason))
			continue
		}
		s.said = append(s.said, fmt.Sprintf("%d: %v %d (%v)", at, a.Kind, a.ID, a.Reason))
	}
}

// until lets all timers up to a time fire.
func (s *story) until(at int64) {
	for range 10_000 {
		next, ok := s.c.Next()
		if !ok || next > at*ms {
			return
		}
		s.c.Tick(next)
		s.note(next / ms)
	}
	s.t.Fatal("the timer does not move on")
}

func (s *story) arrive(at int64, a Arrival) Verdict {
	s.until(at)
	v := s.c.Arrive(at*ms, a)
	s.said = append(s.said, fmt.Sprintf("%d: %d %v", at, a.ID, v))
	s.note(at)
	return v
}

func (s *story) long(at int64, id uint64, tokens int) Verdict {
	return s.arrive(at, Arrival{ID: id, Fresh: tokens, Context: tokens})
}

func (s *story) short(at int64, id uint64) Verdict {
	return s.arrive(at, Arrival{ID: id, Fresh: 60, Context: 50_000})
}

func (s *story) first(at int64, id uint64) {
	s.until(at)
	s.c.FirstToken(at*ms, id)
	s.note(at)
}

func (s *story) back(at int64, id uint64, done int) {
	s.until(at)
	s.c.Preempted(at*ms, id, done)
	s.note(at)
}

// sliced is the end of a slice of which the engine counts as many tokens as the caller, and finds so many cached.
func (s *story) sliced(at int64, id uint64, cached int) {
	s.until(at)
	i := s.c.byID[id]
	s.c.Sliced(at*ms, id, Slice{Prompt: s.c.all[i].slicing.cut, Cached: cached})
	s.note(at)
}

// slice is a slice that began at a time and takes as long as an engine of 10,000 tokens/s needs for what the ones before left
// to it, a percent more for each thousand tokens before. It answers when it ended.
func (s *story) slice(at int64, id uint64) int64 {
	s.t.Helper()
	p := &s.c.all[s.c.byID[id]].slicing
	if !p.flying {
		s.t.Fatalf("no slice of %d is in flight: %v", id, s.said)
	}
	cached := max(p.prompt, 0)
	at += int64(float64(p.cut-cached) / 10 * (1 + contextCost*float64(p.cut+cached)/2))
	s.sliced(at, id, cached)
	return at
}

func (s *story) leave(at int64, id uint64) {
	s.until(at)
	s.c.Leave(at*ms, id)
	s.note(at)
}

func (s *story) expect(lines ...string) {
	s.t.Helper()
	if !slices.Equal(s.said, lines) {
		s.t.Errorf("it went\n  %s\nwant\n  %s", strings.Join(s.said, "\n  "), strings.Join(lines, "\n  "))
	}
	s.said = nil
}

func TestWithoutContentionNothingIsHeld(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.first(14_000, 1)
	s.short(14_010, 2)
	s.long(14_500, 3, 20_000) // 2 waits for its first token, but not for long
	s.first(14_520, 2)
	s.leave(15_000, 1)
	s.expect("0: 1 go", "14010: 2 go", "14500: 3 held", "14520: admit 3 (quiet)")
	s.first(16_000, 3)
	s.leave(17_000, 3)
	s.leave(17_000, 2)
	if v := s.c.View(); v.InFlight+v.Held+v.Back+v.Waiting+v.Decoding != 0 || v.FlightTokens+v.HeldTokens != 0 {
		t.Errorf("something is left: %+v", v)
	}
}

// C134: a short turn does not wait for the long prefill in flight; C142: without the engine's help.
func TestAShortTurnTakesALongPrefillBack(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.short(3000, 2)
	s.short(3020, 3)
	s.back(3060, 1, 25_000)
	s.first(3080, 2)
	s.first(3100, 3)
	s.expect("0: 1 go", "3000: 2 go", "3000: preempt 1 (blocking)", "3020: 3 go", "3100: admit 1 (quiet)")
	if st, _ := s.c.Status(3100*ms, 1); st.Preempted != 1 || st.HeldSeconds != 0.04 || st.ExtraSeconds != 0.04 || st.Class != Long {
		t.Errorf("status %+v, want one preemption and 40 ms of delay", st)
	}
	if v := s.c.View(); v.FlightTokens != 75_000 {
		t.Errorf("%d tokens in prefill, want the 75,000 that are left", v.FlightTokens)
	}
}

func TestAMinimumRunBetweenPreemptions(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.short(10, 2) // in the first step: the abort is ordered in the second
	s.until(1000)
	s.back(1010, 1, -1)
	s.first(1020, 2)
	s.short(1021, 3)
	s.until(2000)
	s.expect("0: 1 go", "10: 2 go", "112: preempt 1 (blocking)", "1020: admit 1 (quiet)", "1021: 3 go", "1132: preempt 1 (blocking)")

	loses := quick
	loses.KeepsStep = false // whole steps first, and twice as many
	s = tell(t, Options{MinRunSteps: 3}, loses)
	s.long(0, 1, 100_000)
	s.short(10, 2)
	s.until(3000)
	s.expect("0: 1 go", "10: 2 go", "612: preempt 1 (blocking)")
}

func TestNeverAfterTheFirstToken(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.short(50, 2)
	s.first(100, 1)
	s.until(100_000)
	s.short(100_000, 3)
	s.expect("0: 1 go", "50: 2 go", "100000: 3 go")
}

// The engine answers in the moment of the abort: the answer wins and nothing is sent again.
func TestTheAnswerWins(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.short(3000, 2)
	s.c.Committed(3010*ms, 1)
	s.back(3020, 1, 50_000) // contradicts it: ignored
	s.first(3030, 2)
	s.long(3040, 3, 20_000)
	s.expect("0: 1 go", "3000: 2 go", "3000: preempt 1 (blocking)", "3040: 3 go")
	if v := s.c.View(); v.Totals.Late != 1 || v.Totals.Preempted != 0 || v.Decoding != 2 {
		t.Errorf("%+v", v)
	}
}

func TestAPreemptionMustWin(t *testing.T) {
	for _, c := range []struct {
		what string
		opt  Options
		f    func(f *Facts)
		at   int64 // arrival of the short turn
		want bool
	}{
		{"most is still to come", Options{}, func(*Facts) {}, 1000, true},
		{"nearly done", Options{}, func(*Facts) {}, 1900, false},
		{"an abort takes longer than the rest", Options{}, func(f *Facts) { f.AbortSeconds = 4 }, 1000, false},
		{"a patient target", Options{Target: 1500 * time.Millisecond}, func(*Facts) {}, 1000, false},
		{"the engine cannot stop", Options{}, func(f *Facts) { f.CanPreempt = false }, 1000, false},
		{"it finds nothing again", Options{}, func(f *Facts) { f.Kept = 0.1 }, 1000, false},
		{"it finds most again", Options{}, func(f *Facts) { f.Kept = 0.9 }, 1000, true},
		{"chunks help", Options{}, func(f *Facts) { f.ShortBehindLong = 0.1 }, 1000, false},
		{"chunks do not help", Options{}, func(f *Facts) { f.ShortBehindLong = 3 }, 1000, true},
		{"the whole engine for the long lane", Options{Share: 1}, func(*Facts) {}, 1000, false},
		{"off", Options{Off: true}, func(*Facts) {}, 1000, false},
	} {
		f := quick
		c.f(&f)
		s := tell(t, c.opt, f)
		s.long(0, 1, 20_000)
		s.short(c.at, 2)
		if got := s.c.View().Preempting == 1; got != c.want {
			t.Errorf("%s: preempted %v, want %v", c.what, got, c.want)
		}
	}
}

// The engine was seen to serve short turns beside a long prefill, and then it does not.
func TestChunksThatStopHelping(t *testing.T) {
	f := quick
	f.ShortBehindLong = 0
	s := tell(t, Options{}, f)
	s.long(0, 1, 1_000_000)
	for i := range int64(3) { // in each of three, a short turn comes and is served before the preemption that is put off for it
		at := 900 * i
		s.short(at+600, uint64(10+i))
		s.first(at+610, uint64(10+i))
		s.leave(at+899, 1)
		s.long(at+900, 1, 1_000_000)
	}
	s.said = nil
	if b := s.c.View().ShortBehindLong; b < 0.009 || b > 0.011 {
		t.Errorf("learned %v s beside a long prefill, want 10 ms", b)
	}
	s.short(3700, 20)
	s.until(5000)
	s.expect("3700: 20 go", "4200: preempt 1 (overdue)")
}

// Nothing is known of the engine's own chunking: the first preemptions are put off a little, to see.
func TestTheFirstPreemptionsAreTrials(t *testing.T) {
	f := quick
	f.ShortBehindLong = 0
	s := tell(t, Options{}, f)
	s.long(0, 1, 1_000_000)
	for i := range int64(4) {
		at := 1000 * (i + 1)
		s.short(at, uint64(10+i))
		s.until(at + 300)
		s.back(at+320, 1, -1)
		s.first(at+330, uint64(10+i))
	}
	s.expect("0: 1 go",
		"1000: 10 go", "1250: preempt 1 (blocking)", "1330: admit 1 (quiet)",
		"2000: 11 go", "2250: preempt 1 (blocking)", "2330: admit 1 (quiet)",
		"3000: 12 go", "3250: preempt 1 (blocking)", "3330: admit 1 (quiet)",
		"4000: 13 go", "4000: preempt 1 (blocking)", "4330: admit 1 (quiet)")
}

// The client leaves, or the engine dies, between the abort and the replay.
func TestLeavingAtEveryStage(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.long(0, 2, 100_000)
	s.short(1000, 3)
	s.leave(1010, 1) // while being preempted
	s.back(1020, 1, 10_000)
	s.leave(1030, 3)
	s.expect("0: 1 go", "0: 2 held", "1000: 3 go", "1000: preempt 1 (blocking)", "1030: admit 2 (quiet)")
	s.short(2000, 4)
	s.back(2010, 2, 1000)
	s.leave(2020, 2) // while back
	s.leave(2030, 2)
	s.leave(2040, 99)
	s.leave(2050, 4)
	if v := s.c.View(); v.InFlight+v.Held+v.Back+v.Waiting+v.Decoding != 0 || len(s.c.byID) != 0 {
		t.Errorf("something is left: %+v", v)
	}
}

// Answers that come whole show no first token. Their prefill is taken to be over when it must be.
func TestUnstreamedRequests(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.arrive(0, Arrival{ID: 1, Fresh: 50_000, Context: 50_000, Unstreamed: true}) // about 5 s
	s.arrive(100, Arrival{ID: 2, Fresh: 60, Context: 60, Unstreamed: true})
	s.back(160, 1, -1)
	s.until(1000) // 2 has its first token by now
	s.short(6000, 3)
	s.until(6001)
	s.first(6010, 3)
	s.long(6020, 4, 50_000)
	s.until(9000)
	s.expect("0: 1 go", "100: 2 go", "112: preempt 1 (blocking)", "267: admit 1 (quiet)", "6000: 3 go", "6020: 4 held", "6417: admit 4 (quiet)")
}

// A reload changes the rules with requests held; off lets them all go.
func TestOptionsChangeWithRequestsHeld(t *testing.T) {
	s := tell(t, Options{}, quick)
	for id := range uint64(4) {
		s.long(0, id, 50_000)
	}
	s.said = nil
	s.c.SetOptions(10*ms, Options{Budget: 100_000})
	s.note(10)
	s.expect("10: admit 1 (quiet)")
	s.c.SetOptions(20*ms, Options{Off: true})
	s.note(20)
	s.expect("20: admit 2 (off)", "20: admit 3 (off)")
	s.long(30, 5, 50_000)
	s.short(30, 6)
	s.expect("30: 5 go", "30: 6 go")
}

func TestBorderFollowsTheRate(t *testing.T) {
	for _, c := range []struct {
		opt  Options
		rate float64
		want int
	}{
		{Options{}, 10_000, 5000}, {Options{}, 0, 4000}, {Options{}, 100, 512}, {Options{Target: time.Second}, 10_000, 20_000},
		{Options{Border: 16_000}, 100, 16_000}, {Options{Border: -1}, 10_000, 5000},
	} {
		s := tell(t, c.opt, Facts{PrefillRate: c.rate})
		if got := s.c.Border(); got != c.want {
			t.Errorf("%+v at %v tokens/s: border %d, want %d", c.opt, c.rate, got, c.want)
		}
	}
}

func TestNamesOfThings(t *testing.T) {
	if got := fmt.Sprint(Interactive, Long, Go, Held, Full, Admit, Preempt, Expire, Quiet, Guaranteed, Immune, Off, Blocking, Overdue, Waited); got !=
		"interactive long go held full admit preempt expire quiet guaranteed immune off blocking overdue waited" {
		t.Error(got)
	}
}
