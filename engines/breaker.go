package engines

import (
	"fmt"
	"slices"
	"time"
)

const (
	breakAfter      = 5                // failures in a row that open the breaker
	breakDistinct   = 3                // distinct causes among them: one prompt that no engine can take, sent again and again, says nothing about an engine
	coolDownFirst   = 2 * time.Second  // after the breaker opened
	coolDownLongest = 10 * time.Second // it doubles each time the breaker opens again without a good answer in between
	causesKept      = 16               // what is remembered of causes, those met longest ago go first
)

// breaker counts failures of requests to an engine whose health page is green. Open means last resort, not shut out: the page may be right and the requests at fault, and an engine that fails
// requests is better than none.
//
// A failure may name its causes, such as its session and its prompt. One that shares a cause with an earlier failure of the row is a repeat: it counts as a failure, but as no new cause. One that
// names none is taken for a new one.
type breaker struct {
	open     bool
	reason   string
	coolDown time.Time          // it stays open at least until then
	opened   int                // times it opened without a good answer in between
	failures int                // in a row
	distinct int                // causes among them
	causes   [causesKept]uint64 // met last first; 0 = none
}

// failed counts one failure and tells whether it opened the breaker.
func (b *breaker) failed(now time.Time, causes []uint64) bool {
	b.failures++
	known := false
	for _, c := range causes {
		known = known || c != 0 && slices.Contains(b.causes[:], c)
	}
	if !known {
		b.distinct++
	}
	for _, c := range causes {
		if c == 0 {
			continue
		}
		at := slices.Index(b.causes[:], c)
		if at < 0 {
			at = causesKept - 1
		}
		copy(b.causes[1:at+1], b.causes[:at])
		b.causes[0] = c
	}
	if b.open || b.failures < breakAfter || b.distinct < breakDistinct {
		return false
	}
	b.open = true
	b.coolDown = now.Add(min(coolDownFirst<<min(b.opened, 10), coolDownLongest))
	b.opened++
	b.reason = fmt.Sprintf("%d requests in a row failed, of %d or more sessions and prompts", b.failures, b.distinct)
	return true
}

// answered takes a good answer: the row ends. An open breaker waits for the next good probe, and no longer.
func (b *breaker) answered() {
	*b = breaker{open: b.open, reason: b.reason}
}

// refused takes a 429 or 503: the row ends, but nothing is said about requests that get in.
func (b *breaker) refused() {
	b.failures, b.distinct, b.causes = 0, 0, [causesKept]uint64{}
}

// probed takes a good probe: a breaker whose cool-down is over closes, on trial.
func (b *breaker) probed(now time.Time) {
	if b.open && !now.Before(b.coolDown) {
		b.open, b.reason = false, ""
		b.trial()
	}
}

// trial makes one more failure enough to open it again, if its cause is a new one; after a good answer the count starts anew.
func (b *breaker) trial() {
	if b.opened == 0 {
		b.refused()
		return
	}
	b.failures, b.distinct = breakAfter-1, breakDistinct-1
}

// calm tells that a good answer would change nothing.
func (b *breaker) calm() bool { return b.failures == 0 && b.opened == 0 && !b.open }
