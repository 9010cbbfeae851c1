package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// FaultKind names what goes wrong.
type FaultKind string

const (
	// FaultStatus answers Status with Message and RetryAfter instead of working.
	FaultStatus FaultKind = "status"
	// FaultReset resets the connection: before the headers if After is 0, else after After events (a
	// whole answer is cut in its middle).
	FaultReset FaultKind = "reset"
	// FaultStall sends nothing more after After events; for Delay, or until the client leaves.
	FaultStall FaultKind = "stall"
	// FaultErrorEvent reports Status and Message inside a stream that began with 200, after After events.
	FaultErrorEvent FaultKind = "error_event"
	// FaultTruncate ends a stream cleanly after After events, without its final event.
	FaultTruncate FaultKind = "truncate"
	// FaultSlowHeaders waits Delay before the headers.
	FaultSlowHeaders FaultKind = "slow_headers"
	// FaultBigEvent makes the first token's event Bytes long (default 1.5 million).
	FaultBigEvent FaultKind = "big_event"
	// FaultRefuse closes the listener at once, for Delay or until ClearFaults; open connections go on.
	FaultRefuse FaultKind = "refuse"
	// FaultCrash is kill -9: the listener closes, every connection is reset, the cache is lost. It is
	// back after Delay, or at ClearFaults.
	FaultCrash FaultKind = "crash"
)

// Fault is a failure to order. All kinds but refuse and crash wait for requests and hit the first ones
// that match.
type Fault struct {
	Kind FaultKind
	// Count is how many requests are hit: 0 means 1, negative all.
	Count int
	// Path must be part of the request's path; empty means the four generation paths.
	Path string
	// Contains must be part of the body.
	Contains string

	Status     int // default 503; 500 for error_event
	Message    string
	RetryAfter string // header value; empty = no header
	After      int    // events
	Delay      time.Duration
	Bytes      int
}

type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// take finds the fault for a request and counts it down.
func (f *faults) take(path string, generation bool, body []byte) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.list {
		if o.Path == "" && !generation || !strings.Contains(path, o.Path) || !strings.Contains(string(body), o.Contains) {
			continue
		}
		hit := *o
		if o.Count > 0 {
			if o.Count--; o.Count == 0 {
				f.list = append(f.list[:i:i], f.list[i+1:]...)
			}
		}
		return &hit
	}
	return nil
}

// Inject orders faults.
func (s *Server) Inject(list ...Fault) error {
	for _, f := range list {
		switch f.Kind {
		case FaultRefuse, FaultCrash:
			s.down(f.Kind == FaultCrash, f.Delay)
			continue
		case FaultStatus, FaultReset, FaultStall, FaultErrorEvent, FaultTruncate, FaultSlowHeaders, FaultBigEvent:
		default:
			return fmt.Errorf("unknown fault kind %q", f.Kind)
		}
		if f.Count == 0 {
			f.Count = 1
		}
		if f.Status == 0 {
			f.Status = 503
			if f.Kind == FaultErrorEvent {
				f.Status = 500
			}
		}
		if f.Message == "" {
			f.Message = "ordered fault"
		}
		if f.Bytes == 0 {
			f.Bytes = 1_500_000
		}
		s.faults.mu.Lock()
		s.faults.list = append(s.faults.list, &f)
		s.faults.mu.Unlock()
	}
	return nil
}

// ClearFaults drops all orders and opens a closed listener.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	s.faults.list = nil
	s.faults.mu.Unlock()
	s.up()
}
