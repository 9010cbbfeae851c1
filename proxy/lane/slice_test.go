package lane

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cuts is quick, with a caller that can cut prompts.
var cuts = func() Facts { f := quick; f.Slices = true; return f }()

// A long prompt comes while short turns do: it goes in slices of half a second, short turns go between them, and the last
// run is the request itself.
func TestALongPromptInSlices(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 100)
	s.first(10, 100)
	s.long(100, 1, 15_000)
	s.short(300, 101)
	s.sliced(500, 1, 0)
	s.first(520, 101)
	s.sliced(920, 1, 3800)
	s.first(1700, 1)
	s.expect("0: 100 go", "100: 1 held", "100: admit 1 to 3840 (quiet)", "300: 101 go", "520: admit 1 to 7680 (quiet)", "920: admit 1 to 11520 (quiet)")
	if st, _ := s.c.Status(1800*ms, 1); st.Slices != 2 || st.Preempted != 0 || st.ExtraSeconds > 0.021 {
		t.Errorf("status %+v, want two slices, no preemption, 20 ms of delay", st)
	}
	if v := s.c.View(); v.Totals.Slices != 2 || v.Totals.SliceSeconds != 0.8 || v.Totals.Held != 0 || v.Way != BySlices {
		t.Errorf("%+v", v)
	}
}

// Nobody is there who would wait: no slice, no hold.
func TestNoSlicesWithoutContention(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.long(0, 1, 100_000)
	s.first(14_000, 1)
	s.short(14_000, 100)
	s.first(14_010, 100)
	s.long(24_001, 2, 100_000) // 10 s later
	s.first(38_000, 2)
	s.long(38_000, 3, 100_000)
	s.long(38_001, 4, 100_000) // as long: it waits for the other's end
	s.first(52_000, 3)
	s.expect("0: 1 go", "14000: 100 go", "24001: 2 go", "38000: 3 go", "38001: 4 held", "52000: admit 4 (quiet)")
}

// Whatever comes, as long as nobody comes within 10 s of a short turn's arrival or while a long one is in prefill: everything
// passes at once, and nothing is ever wanted.
func TestWithoutContentionLanesCostNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(Options{})
		c.SetFacts(cuts)
		now, calmAt := int64(0), int64(0)
		for id := range uint64(rapid.IntRange(1, 30).Draw(t, "requests")) {
			tokens := rapid.SampledFrom([]int{10, 1000, 20_000, 300_000}).Draw(t, "tokens")
			isLong := tokens >= c.Border()
			if isLong {
				now = max(now, calmAt)
			} else {
				calmAt = now + calm
			}
			if v := c.Arrive(now, Arrival{ID: id, Fresh: tokens}); v != Go {
				t.Fatalf("%d tokens at %d: %v", tokens, now, v)
			}
			now += int64(tokens) * 100_000
			c.FirstToken(now, id)
			if rapid.Bool().Draw(t, "leaves") {
				c.Leave(now, id)
			}
			now += rapid.Int64Range(0, 20e9).Draw(t, "pause")
			if a := c.Actions(nil); len(a) > 0 {
				t.Fatalf("%v is wanted", a)
			}
		}
		if v := c.View().Totals; v.Held+v.Slices+v.Ordered != 0 || v.BlockedSeconds > 0 {
			t.Fatalf("%+v", v)
		}
	})
}

// A long prompt that went whole is taken back for the first short turn, and goes on in slices.
func TestSlicesAfterAPreemption(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.long(0, 1, 50_000)
	s.short(1000, 100)
	s.back(1050, 1, 10_000)
	s.first(1060, 100)
	s.sliced(1480, 1, 10_000)
	s.expect("0: 1 go", "1000: 100 go", "1000: preempt 1 (blocking)", "1060: admit 1 to 13840 (quiet)", "1480: admit 1 to 17680 (quiet)")
	s.until(11_600) // this slice takes far too long, but nobody waits
	s.expect()
	s.short(11_600, 101)
	s.expect("11600: 101 go", "11600: preempt 1 (blocking)")
	s.sliced(11_610, 1, 15_000) // it ends in this very moment: its work counts
	if v := s.c.View(); v.Totals.Late != 1 || v.Totals.Preempted != 1 || v.HeldTokens != 50_000-17_680 {
		t.Errorf("%+v", v)
	}
}

// An engine that cannot stop makes the first short turn wait, and no other for long after it.
func TestSlicesWhereTheEngineCannotStop(t *testing.T) {
	f := cuts
	f.CanPreempt = false
	s := tell(t, Options{}, f)
	s.long(0, 1, 50_000)
	s.short(1000, 100)
	s.first(6000, 1)
	s.first(6010, 100)
	s.long(300_000, 2, 50_000)
	s.expect("0: 1 go", "1000: 100 go", "300000: 2 held", "300000: admit 2 to 3840 (quiet)")
}

// One that waited enough is not kept waiting any more, and still lets short turns in between its slices.
func TestImmuneOnesGoInSlices(t *testing.T) {
	s := tell(t, Options{MaxExtraDelay: 100 * time.Millisecond}, cuts)
	s.short(0, 100)
	s.long(1, 1, 50_000)
	s.until(500)
	s.sliced(500, 1, 0)
	s.expect("0: 100 go", "1: 1 held", "101: admit 1 to 3840 (immune)", "500: admit 1 to 7680 (immune)")
}

// A medium prompt behind a huge one goes between two of its slices, however late it comes, until such prompts have added a
// quarter to what the huge one takes.
func TestMediumPromptsBetweenTheSlicesOfAHugeOne(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 100)
	s.first(10, 100)
	s.long(20, 1, 50_000) // 5.5 s with its context, so 1.4 s are left to others
	s.long(200, 2, 6000)
	at := s.slice(20, 1)
	s.first(at+600, 2)
	s.expect("0: 100 go", "20: 1 held", "20: admit 1 to 3840 (quiet)", "200: 2 held", "411: admit 2 (quiet)", "1011: admit 1 to 7680 (quiet)")
	for at += 600; at < 3000; {
		at = s.slice(at, 1)
	}
	s.said = nil
	s.long(at+10, 3, 7000)
	at = s.slice(at, 1)
	s.first(at+700, 3)
	s.long(at+710, 4, 7000)
	s.slice(at+700, 1)
	s.expect("3197: 3 held", "3666: admit 3 (quiet)", "4366: admit 1 to 30720 (quiet)", "4376: 4 held", "4860: admit 1 to 34560 (quiet)")
}

// A prompt that went between two slices of one that is about to be done goes on before it, in slices itself. More than a quarter
// has passed the other, but its tenant has more waiting.
func TestOneThatPassedAnotherGoesOnBeforeIt(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 100)
	s.first(10, 100)
	s.arrive(20, Arrival{ID: 1, Tenant: 1, Fresh: 100_000})
	s.arrive(30, Arrival{ID: 2, Tenant: 1, Fresh: 100_000})
	at := int64(20)
	for at < 7000 {
		at = s.slice(at, 1)
	}
	s.said = nil
	s.c.all[s.c.byID[1]].passedBy = s.c.engine.prefill(100_000, 100_000) / passed
	s.arrive(at+200, Arrival{ID: 3, Tenant: 2, Fresh: 12_000})
	at = s.slice(at, 1)
	at = s.slice(at, 3)
	at = s.slice(at, 3)
	s.first(at+500, 3)
	s.expect("7632: 3 held", "8044: admit 3 to 3840 (quiet)", "8435: admit 3 to 7680 (quiet)", "8841: admit 3 (quiet)", "9341: admit 1 to 65280 (quiet)")
}

// A short turn that comes while the engine's front end still reads a slice is served at once, and that says nothing of what the
// engine does beside a prefill.
func TestShortTurnsWhileASliceIsRead(t *testing.T) {
	f := cuts
	f.ShortBehindLong = 0
	s := tell(t, Options{}, f)
	s.short(0, 100)
	s.first(10, 100)
	s.long(20, 1, 100_000)
	at := int64(20)
	for i := range uint64(6) {
		s.short(at+50, 200+i)
		s.first(at+70, 200+i)
		at = s.slice(at+200, 1)
	}
	if v := s.c.View(); v.ShortBehindLong != 0 || v.Way != BySlices {
		t.Errorf("%v, %s; %v s beside", v.Way, v.Why, v.ShortBehindLong)
	}
}

// The connection of a request that is taken back is closed at once, but the engine goes on to the end of its step. It is not
// sent again before, though the short turn's client has left.
func TestNoSecondCopyWhileAnAbortDoesNotShow(t *testing.T) {
	f := quick
	f.UnseenAborts = true
	s := tell(t, Options{}, f)
	s.long(0, 1, 50_000)
	s.short(1000, 2)
	s.back(1001, 1, -1)
	s.leave(1002, 2)
	s.until(2000)
	s.expect("0: 1 go", "1000: 2 go", "1000: preempt 1 (blocking)", "1100: admit 1 (quiet)")
	s.short(3000, 3)
	s.back(3001, 1, -1)
	s.first(3040, 3) // now it shows
	s.expect("3000: 3 go", "3000: preempt 1 (blocking)", "3040: admit 1 (quiet)")
}

// Lanes are switched off while a slice is in flight: the rest goes whole when it has ended.
func TestSwitchedOffWithASliceInFlight(t *testing.T) {
	s := tell(t, Options{}, cuts)
	s.short(0, 100)
	s.long(10, 1, 50_000)
	s.first(20, 100)
	s.said = nil
	s.c.SetOptions(100*ms, Options{Off: true})
	s.note(100)
	s.short(110, 101)
	s.sliced(520, 1, 0)
	s.first(5000, 1)
	s.expect("110: 101 go", "520: admit 1 (off)")
}

// Slices are as long as eight times the fixed part of a request, and as short as they may be for those who come.
func TestHowLongASliceIs(t *testing.T) {
	for _, c := range []struct {
		what  string
		front int64 // ms
		gap   int64 // ms
		want  int64
	}{
		{"nothing known", 0, 0, 500}, {"a quick front end", 20, 400, 500}, {"a slow one", 100, 400, 800}, {"a very slow one", 1000, 400, 2000},
		{"short turns are rare", 20, 1600, 1200}, {"rarer still", 20, 9000, 2000},
	} {
		s := tell(t, Options{}, cuts)
		id, at := uint64(1), int64(0)
		for range 100 {
			id++
			s.short(at, id)
			s.first(at+c.front+9, id) // 9 ms for its own tokens
			at += max(c.gap, c.front+10)
		}
		got := s.c.sliceTime() / ms
		if c.gap == 0 {
			got = tell(t, Options{}, cuts).c.sliceTime() / ms
		}
		if got < c.want*95/100 || got > c.want*105/100 {
			t.Errorf("%s: slices of %d ms, want about %d", c.what, got, c.want)
		}
	}
}

// The way that an engine gets, and why.
func TestTheWayAnEngineGets(t *testing.T) {
	for _, c := range []struct {
		opt  Options
		f    Facts
		want Way
		why  string
	}{
		{Options{}, Facts{CanPreempt: true, Slices: true}, BySlices, "keeps"},
		{Options{NoSlices: true}, Facts{CanPreempt: true, Slices: true}, ByPreempting, "switched off"},
		{Options{}, Facts{CanPreempt: true}, ByPreempting, "not possible"},
		{Options{}, Facts{CanPreempt: true, Kept: 0.1}, ByHolding, "not found again"},
		{Options{}, Facts{}, ByHolding, "cannot stop"},
		{Options{}, Facts{CanPreempt: true, Slices: true, ShortBehindLong: 0.1}, ByPreempting, "by itself"},
		{Options{}, Facts{Slices: true, ShortBehindLong: 0.1}, ByHolding, "by itself"},
		{Options{Off: true}, Facts{CanPreempt: true}, ByNothing, "off"},
		{Options{Share: 1}, Facts{CanPreempt: true, Slices: true}, ByNothing, "all of the time"},
	} {
		s := tell(t, c.opt, c.f)
		if v := s.c.View(); v.Way != c.want || !strings.Contains(v.Why, c.why) {
			t.Errorf("%+v %+v: %v (%s), want %v (…%s…)", c.opt, c.f, v.Way, v.Why, c.want, c.why)
		}
	}
}
