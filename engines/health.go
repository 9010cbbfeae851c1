package engines

import (
	"fmt"
	"time"
)

// health is the state machine alone: no I/O, no clock, no lock. See State for its drawing.
type health struct {
	base     State // Starting, Ready, Down or Unauthorized; Busy and Draining are laid over it
	reason   string
	since    time.Time
	drained  bool
	busy     time.Time // Busy until then
	lost     bool      // a connection was refused or broken since the last Ready: the process may be another one
	failures int       // Failed and Broken in a row
	silent   int       // probes without an answer in a row
	opened   int       // times the breaker opened in a row
	coolDown time.Time // the breaker stays open at least until then
	answered time.Time // last sign of life from a request
}

// state is what others see at a time.
func (h *health) state(now time.Time) State {
	switch {
	case h.base != Ready:
		return h.base
	case h.drained:
		return Draining
	case now.Before(h.busy):
		return Busy
	}
	return Ready
}

func (h *health) become(now time.Time, s State, reason string) {
	if h.base != s {
		h.since = now
	}
	h.base, h.reason = s, reason
}

// report takes what a request met. probe asks for a probe soon.
func (h *health) report(now time.Time, ev Event, retryAfter time.Duration) (probe bool) {
	switch ev {
	case Answered:
		h.answered, h.failures, h.silent = now, 0, 0
		if h.base == Ready {
			h.opened = 0
		}
	case Refused:
		h.answered, h.failures, h.silent = now, 0, 0
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
		h.failures++
		if h.base == Ready && h.failures >= breakAfter {
			h.open(now, fmt.Sprintf("%d requests in a row failed", h.failures))
		}
		return ev == Broken || h.base == Down
	case Unreachable:
		h.lost = true
		if h.base != Down {
			h.become(now, Down, "connection refused or timed out")
		}
		return true
	}
	return false
}

// open opens the breaker. Each time without a good answer in between it stays open twice as long.
func (h *health) open(now time.Time, reason string) {
	pause := coolDownFirst << min(h.opened, 10)
	h.coolDown = now.Add(min(pause, coolDownLongest))
	h.opened++
	h.become(now, Down, reason)
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
		if h.base == Down && now.Before(h.coolDown) {
			return // the breaker: health pages lie while requests fail
		}
		if h.base != Ready {
			// One more failure after a break is enough to break again; after anything else the count starts anew.
			h.failures = 0
			if h.opened > 0 {
				h.failures = breakAfter - 1
			}
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
