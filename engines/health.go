package engines

import "time"

// health is the state machine alone: no I/O, no clock, no lock. See State for its drawing.
type health struct {
	base     State // Starting, Ready, Down or Unauthorized; Busy and Draining are laid over it
	reason   string
	since    time.Time
	drained  bool
	busy     time.Time // Busy until then
	lost     bool      // a connection was refused or broken since the last Ready: the process may be another one
	silent   int       // probes without an answer in a row
	answered time.Time // last sign of life from a request
	breaker  breaker
}

// state is what others see at a time.
func (h *health) state(now time.Time) State {
	switch {
	case h.base != Ready:
		return h.base
	case h.drained:
		return Draining
	case now.Before(h.busy), h.breaker.open:
		return Busy
	}
	return Ready
}

// why says what keeps it from being Ready.
func (h *health) why() string {
	if h.base == Ready && h.breaker.open {
		return h.breaker.reason
	}
	return h.reason
}

func (h *health) become(now time.Time, s State, reason string) {
	if h.base != s {
		h.since = now
	}
	h.base, h.reason = s, reason
}

// report takes what a request met, for a failure with what may have caused it. probe asks for a probe soon.
func (h *health) report(now time.Time, ev Event, retryAfter time.Duration, causes []uint64) (probe bool) {
	switch ev {
	case Answered:
		h.answered, h.silent = now, 0
		h.breaker.answered()
		return h.breaker.open
	case Refused:
		h.answered, h.silent = now, 0
		h.breaker.refused()
		if retryAfter <= 0 {
			retryAfter = busyShort
		}
		if until := now.Add(min(max(retryAfter, busyShort), busyLongest)); until.After(h.busy) {
			h.busy = until
		}
	case Failed, Broken:
		if ev == Broken {
			h.lost = true
		} else {
			h.answered, h.silent = now, 0 // a 500 is a sign of life, if not of health
		}
		if h.base == Ready && h.breaker.failed(now, causes) {
			h.since = now
		}
		return ev == Broken || h.base == Down || h.breaker.open // is its health page still green?
	case Unreachable:
		h.lost = true
		if h.base != Down {
			h.become(now, Down, "connection refused or timed out")
		}
		return true
	}
	return false
}

// verdict is what one round of probing found.
type verdict struct {
	kind   verdictKind
	reason string
	sent   time.Time // when the probe left: an answer to a request after that outweighs silence
}

type verdictKind uint8

const (
	probeReady   verdictKind = iota // healthy, and a model is listed
	probeLoading                    // answers, but is not ready
	probeRefused                    // no connection
	probeSilent                     // no answer in time
	probeAuth                       // 401 or 403
)

// probed takes a verdict.
func (h *health) probed(now time.Time, v verdict) {
	if v.kind != probeSilent {
		h.silent = 0
	}
	switch v.kind {
	case probeReady:
		h.breaker.probed(now)
		if h.base != Ready {
			h.breaker.open = false // it was away: what it is now, the next requests tell
			h.breaker.trial()
			h.lost = false
			h.become(now, Ready, "")
		}
	case probeLoading:
		switch {
		case h.base == Ready:
			h.become(now, Down, v.reason)
		case h.base == Down && h.lost, h.base == Unauthorized:
			h.become(now, Starting, v.reason) // it came back and loads
		default:
			h.reason = v.reason
		}
	case probeRefused:
		h.lost = true
		h.become(now, Down, v.reason)
	case probeSilent:
		if h.answered.After(v.sent) {
			h.silent = 0 // it answers requests: its health page is slow, not dead
			return
		}
		h.silent++
		if h.silent >= silentProbes || h.base != Ready {
			h.become(now, downUnlessStarting(h), v.reason)
		}
	case probeAuth:
		h.become(now, Unauthorized, v.reason)
	}
}

// downUnlessStarting keeps an engine that never answered in Starting until it is silent for good.
func downUnlessStarting(h *health) State {
	if h.silent < silentProbes && (h.base == Starting || h.base == Unauthorized) {
		return h.base
	}
	return Down
}
