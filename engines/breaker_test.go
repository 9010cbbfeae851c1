package engines

import (
	"testing"
	"time"
)

func (s *story) failsFor(causes ...uint64) { s.h.report(s.n, Failed, 0, causes) }

// One prompt that no engine can take, tried again and again, is not the engines' fault.
func TestAPoisonPromptNeverOpensTheBreaker(t *testing.T) {
	s := readyStory(t)
	for range 50 {
		s.failsFor(1, 100)
		s.failsFor(2, 200)
		s.failsFor(0, 200)
	}
	s.is(Ready)
	for i := range uint64(20) {
		s.failsFor(1, 1000+i)   // the same session goes on with longer prompts
		s.failsFor(3+i, 1000+i) // and its prompts are sent by other sessions
	}
	s.is(Ready)
}

func TestFiveFailuresOfThreeCausesMakeALastResort(t *testing.T) {
	s := readyStory(t)
	for _, cause := range []uint64{1, 2, 3, 3} {
		s.failsFor(cause)
		s.is(Ready)
	}
	s.failsFor(1)
	s.is(Busy)
	if s.h.why() == "" {
		t.Error("no reason is told")
	}
	s.probe(probeReady)
	s.is(Busy)
	s.later(coolDownFirst)
	s.probe(probeReady)
	s.is(Ready)
	if s.h.why() != "" {
		t.Errorf("reason %q", s.h.why())
	}
	for range 10 {
		s.failsFor(2) // on trial: what failed before says nothing new
	}
	s.is(Ready)
	s.failsFor(4)
	s.is(Busy)
}

func TestTheBreakerStaysOpenForTenSecondsAtMostWhileHealthIsGreen(t *testing.T) {
	s := readyStory(t)
	for round := range 12 {
		for i := range uint64(5) {
			s.failsFor(uint64(round)*100 + i + 1)
		}
		s.is(Busy)
		s.later(10 * time.Second)
		s.probe(probeReady)
		s.is(Ready)
	}
}

func TestAGoodAnswerEndsTheCoolDownAtTheNextProbe(t *testing.T) {
	s := readyStory(t)
	for i := range uint64(5) {
		s.failsFor(i + 1)
	}
	s.is(Busy)
	s.meets(Answered)
	s.is(Busy) // only probes lead to Ready
	s.probe(probeReady)
	s.is(Ready)
	s.failsFor(9)
	s.is(Ready)
}

// Down is for what health pages and connections say.
func TestABadHealthPageOrConnectionStillTakesAFailingEngineDown(t *testing.T) {
	for _, down := range []func(s *story){
		func(s *story) { s.probe(probeLoading) },
		func(s *story) { s.probe(probeRefused) },
		func(s *story) { s.meets(Unreachable) },
	} {
		s := readyStory(t)
		for i := range uint64(5) {
			s.failsFor(i + 1)
		}
		s.is(Busy)
		down(s)
		s.is(Down)
		s.probe(probeReady)
		s.is(Ready)
	}
}

// A 504 tells how much work a request was.
func TestTimeoutsOfAnEngineAreNoFailures(t *testing.T) {
	s := readyStory(t)
	for range 20 {
		s.meets(EventOf(504))
	}
	s.is(Ready)
	for i := range uint64(4) {
		s.failsFor(i + 1)
	}
	s.meets(EventOf(504)) // nor are they good answers
	s.failsFor(5)
	s.is(Busy)
}
