package demo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warmring/warmring/e2e/workload"
	"github.com/warmring/warmring/engines/sim"
)

// score is what happened on one way through the fleet.
type score struct {
	name  string
	fleet *fleet

	mu       sync.Mutex // guards all below
	total    int        // turns to be played
	sessions int        // that play them
	started  time.Time
	took     time.Duration // 0 until frozen
	done     int
	inFlight int
	live     int                       // sessions under way
	where    map[*workload.Session]int // engine of the last turn
	follow   int                       // turns that had one before them
	stayed   int                       // those of them on the engine of the one before
	perTurn  []int                     // turns by engine
	ttft     []time.Duration
	failed   int
	errors   []error // the first few
	final    []sim.Stats
}

const maxErrors = 3

func newScore(name string, f *fleet) *score {
	return &score{name: name, fleet: f, where: map[*workload.Session]int{}, perTurn: make([]int, len(f.names))}
}

func (s *score) begin(w *workload.Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started, s.sessions = time.Now(), len(w.Sessions)
	for _, session := range w.Sessions {
		s.total += len(session.Turns)
	}
}

// share is how much of it is done.
func (s *score) share() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.done) / float64(max(s.total, 1))
}

func (s *score) enter(*workload.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live++
}

func (s *score) leave(session *workload.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
	delete(s.where, session)
}

func (s *score) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
}

func (s *score) answered(session *workload.Session, n int, did answered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	s.done++
	if did.err != nil {
		s.failed++
		if len(s.errors) < maxErrors {
			s.errors = append(s.errors, fmt.Errorf("%s: turn %d of session %d (%s): %w", s.name, n+1, session.Number+1, session.Client.Name, did.err))
		}
	}
	if did.ttft > 0 {
		s.ttft = append(s.ttft, did.ttft)
	}
	if did.engine < 0 {
		return
	}
	s.perTurn[did.engine]++
	if before, ok := s.where[session]; ok {
		s.follow++
		if before == did.engine {
			s.stayed++
		}
	}
	s.where[session] = did.engine
}

// freeze ends the counting: the engines may be gone afterwards.
func (s *score) freeze() {
	final := s.fleet.stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.final = time.Since(s.started), final
	slices.Sort(s.ttft)
}

// failures tells how many requests failed and names the first ones; nil if none did.
func (s *score) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d requests through %s failed, the first ones: %w", s.failed, s.done, s.name, joined(s.errors))
}

type joined []error

func (j joined) Error() string {
	text := ""
	for i, err := range j {
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return text
}

// sum adds the engines' counters up.
func sum(all []sim.Stats) (t sim.Stats) {
	for _, st := range all {
		t.Running += st.Running
		t.Waiting += st.Waiting
		t.Queried += st.Queried
		t.Hit += st.Hit
		t.Prefilled += st.Prefilled
	}
	return t
}

// hitShare is the share of prompt tokens found in caches.
func hitShare(st sim.Stats) float64 {
	if st.Queried == 0 {
		return 0
	}
	return float64(st.Hit) / float64(st.Queried)
}

// cached is the hit share of the whole fleet.
func (s *score) cached() float64 { return hitShare(sum(s.final)) }

// fresh is how many prompt tokens were computed.
func (s *score) fresh() int64 { return sum(s.final).Prefilled }

// percentile of the times to the first token, by nearest rank.
func (s *score) percentile(p float64) time.Duration {
	if len(s.ttft) == 0 {
		return 0
	}
	return s.ttft[min(int(p*float64(len(s.ttft))), len(s.ttft)-1)]
}

// loyal is the share of turns on the engine of the turn before.
func (s *score) loyal() float64 {
	if s.follow == 0 {
		return 0
	}
	return float64(s.stayed) / float64(s.follow)
}

// skew is the busiest engine's turns over the mean.
func (s *score) skew() float64 {
	most, all := 0, 0
	for _, n := range s.perTurn {
		most, all = max(most, n), all+n
	}
	if all == 0 {
		return 0
	}
	return float64(most) * float64(len(s.perTurn)) / float64(all)
}
