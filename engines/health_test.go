package engines

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// story drives a health with a clock that only moves when told to.
type story struct {
	t *testing.T
	h health
	n time.Time
}

func begin(t *testing.T) *story {
	return &story{t: t, n: time.Unix(1_000_000, 0), h: health{base: Starting}}
}

func readyStory(t *testing.T) *story {
	s := begin(t)
	s.probe(probeReady)
	s.is(Ready)
	return s
}

func (s *story) is(want State) {
	s.t.Helper()
	if got := s.h.state(s.n); got != want {
		s.t.Fatalf("the engine is %s (%s), want %s", got, s.h.reason, want)
	}
}
func (s *story) later(d time.Duration) { s.n = s.n.Add(d) }
func (s *story) meets(ev Event)        { s.h.report(s.n, ev, 0, nil) }
func (s *story) probe(k verdictKind) {
	s.h.probed(s.n, verdict{kind: k, reason: "because", sent: s.n.Add(-100 * time.Millisecond)})
}

// C164
func TestClientErrorsNeverTouchTheBreaker(t *testing.T) {
	s := readyStory(t)
	for range 20 {
		for _, status := range []int{400, 401, 403, 404, 413, 422, 499, 501} {
			s.meets(EventOf(status))
		}
	}
	s.is(Ready)
	if s.h.breaker.failures != 0 {
		t.Errorf("%d failures counted", s.h.breaker.failures)
	}
}

// C165: ten refusals are a full queue, not a fault; half a second later work may be sent again.
func TestRefusalsMakeBusyForAShortTime(t *testing.T) {
	s := readyStory(t)
	for range 10 {
		s.meets(EventOf(503))
		s.later(50 * time.Millisecond)
	}
	s.is(Busy)
	s.later(460 * time.Millisecond)
	s.is(Ready)
	s.h.report(s.n, Refused, 2*time.Second, nil)
	s.later(1900 * time.Millisecond)
	s.is(Busy)
	s.later(200 * time.Millisecond)
	s.is(Ready)
	s.h.report(s.n, Refused, time.Hour, nil)
	s.later(busyLongest + time.Millisecond)
	s.is(Ready)
}

// C081, C169: one refused connection is enough, and only a probe brings it back.
func TestAConnectFailureMeansDownUntilAProbeSucceeds(t *testing.T) {
	s := readyStory(t)
	s.meets(Unreachable)
	s.is(Down)
	s.meets(Answered) // a late answer of an older request
	s.is(Down)
	s.later(10 * time.Minute) // a timer alone never does
	s.is(Down)
	s.probe(probeRefused)
	s.is(Down)
	s.probe(probeReady)
	s.is(Ready)
}

func TestFiveFailuresInARowMakeALastResortAndGoodAnswersEndThat(t *testing.T) {
	s := readyStory(t)
	for range 4 {
		s.meets(Failed)
	}
	s.meets(Answered)
	for range 4 {
		s.meets(Broken)
	}
	s.is(Ready)
	s.meets(Failed)
	s.is(Busy)
	s.probe(probeReady) // its health page is fine while its requests fail
	s.is(Busy)
	s.later(coolDownFirst)
	s.probe(probeReady)
	s.is(Ready)
	s.meets(Failed) // on trial: one is enough, and the pause is twice as long
	s.is(Busy)
	s.later(coolDownFirst)
	s.probe(probeReady)
	s.is(Busy)
	s.later(coolDownFirst)
	s.probe(probeReady)
	s.is(Ready)
	s.meets(Answered)
	for range 4 {
		s.meets(Failed)
	}
	s.is(Ready)
}

// A long prefill can starve an engine's front end: silence of the health page alone is no fault while requests are answered.
func TestASlowHealthPageNeverTakesDownAnEngineThatAnswersRequests(t *testing.T) {
	s := readyStory(t)
	for range 20 {
		s.later(3 * time.Second)
		s.meets(Answered)
		s.later(10 * time.Millisecond)
		s.probe(probeSilent)
		s.is(Ready)
	}
	for range silentProbes - 1 {
		s.later(3 * time.Second)
		s.probe(probeSilent)
		s.is(Ready)
	}
	s.later(3 * time.Second)
	s.probe(probeSilent)
	s.is(Down)
	s.probe(probeReady)
	s.is(Ready)
}

// C160: a wrong key is told as such.
func TestAWrongKeyIsUnauthorizedNotDown(t *testing.T) {
	s := readyStory(t)
	s.probe(probeAuth)
	s.is(Unauthorized)
	s.probe(probeReady)
	s.is(Ready)
}

// C161, C214
func TestLoadingIsStartingAndLaterDown(t *testing.T) {
	s := begin(t)
	s.probe(probeLoading)
	s.is(Starting)
	s.probe(probeReady)
	s.is(Ready)
	s.probe(probeLoading) // says 503 by itself: it shuts down
	s.is(Down)
	s.probe(probeRefused)
	s.probe(probeLoading) // a new process loads
	s.is(Starting)
}

func TestDrainingIsLaidOverReadyAlone(t *testing.T) {
	s := readyStory(t)
	s.h.drained = true
	s.is(Draining)
	s.meets(Refused)
	s.is(Draining)
	s.meets(Unreachable)
	s.is(Down)
	s.probe(probeReady)
	s.is(Draining)
	s.h.drained = false
	s.later(time.Second)
	s.is(Ready)
}

// Whatever happens: an engine becomes usable only at a successful probe, client errors change nothing, and Busy ends.
func TestLawsOfTheStateMachine(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := begin(t)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			before := s.h.state(s.n)
			switch rapid.IntRange(0, 2).Draw(r, "what") {
			case 0:
				ev := Event(rapid.IntRange(0, int(Late)).Draw(r, "event"))
				causes := rapid.SliceOfN(rapid.Uint64Range(0, 4), 0, 2).Draw(r, "causes")
				s.h.report(s.n, ev, time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "retry after")), causes)
				after := s.h.state(s.n)
				if !before.Usable() && after.Usable() {
					r.Fatalf("%s made %s from %s", ev, after, before)
				}
				if ev == Answered && after != before {
					r.Fatalf("an answer made %s from %s", after, before)
				}
				if before.Usable() && !after.Usable() && ev != Unreachable {
					r.Fatalf("%s alone shut it out: %s from %s", ev, after, before)
				}
				if ev == Unreachable && after != Down {
					r.Fatalf("unreachable, and yet %s", after)
				}
			case 1:
				k := verdictKind(rapid.IntRange(0, int(probeAuth)).Draw(r, "verdict"))
				s.probe(k)
				if after := s.h.state(s.n); !before.Usable() && after.Usable() && k != probeReady {
					r.Fatalf("verdict %d made %s from %s", k, after, before)
				}
			case 2:
				s.later(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(r, "later")))
				if after := s.h.state(s.n); after != before && !(before == Busy && after == Ready) {
					r.Fatalf("time alone made %s from %s", after, before)
				}
			}
		}
		s.later(max(coolDownLongest, busyLongest))
		s.probe(probeReady)
		if s.h.state(s.n) != Ready {
			r.Fatalf("after the longest pause and a good probe it is %s", s.h.state(s.n))
		}
	})
}
