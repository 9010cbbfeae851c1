package proxy

import (
	"crypto/sha256"
	"regexp"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

var ridMember = regexp.MustCompile(`"rid":"[^"]*",?`)

// onlyOneCopyEach checks that the engine never had two requests alive at the same time that are the same but for the
// proxy's own rid, nor two of one client request, whose slices all carry its x-request-id.
func onlyOneCopyEach(t *testing.T, log []sim.Entry) {
	t.Helper()
	type span struct{ from, to time.Time }
	alive := map[any][]span{}
	note := func(key any, e *sim.Entry) {
		s := span{e.Time, e.Done}
		if e.Outcome == sim.Gone && e.Aborted.After(s.to) {
			s.to = e.Aborted
		}
		if s.to.IsZero() {
			s.to = time.Now()
		}
		// Told to stop: what comes later is computed after it has. By closing, if it has no name; the engine may notice late.
		if !e.Closed.IsZero() && e.Closed.Before(s.to) && !ridMember.Match(e.Body) {
			s.to = e.Closed
		}
		if !e.Left.IsZero() && e.Left.Before(s.to) {
			s.to = e.Left.Add(-notice)
		}
		for _, other := range alive[key] {
			if s.from.Before(other.to) && other.from.Before(s.to) {
				t.Errorf("two copies of %.40v at once: one from %v to %v, the other from %v to %v", key, other.from, other.to, s.from, s.to)
			}
		}
		alive[key] = append(alive[key], s)
	}
	for i := range log {
		e := &log[i]
		if e.Method != "POST" || e.Path == "/abort_request" {
			continue
		}
		if len(e.Body) > 0 {
			note(sha256.Sum256(ridMember.ReplaceAll(e.Body, nil)), e)
		}
		if id := e.Header.Get("X-Request-Id"); id != "" {
			note(id, e)
		}
	}
}

// notice is how long the engine's HTTP server may take to notice a close.
const notice = 50 * time.Millisecond

// The check itself: two copies under different names are found.
func TestTwoCopiesUnderDifferentNamesAreFound(t *testing.T) {
	now := time.Now()
	entry := func(body string, from, to int) sim.Entry {
		return sim.Entry{Method: "POST", Path: "/v1/completions", Body: []byte(body), Time: now.Add(time.Duration(from)), Done: now.Add(time.Duration(to))}
	}
	var quiet testing.T
	onlyOneCopyEach(&quiet, []sim.Entry{entry(`{"rid":"a","prompt":"x"}`, 0, 10), entry(`{"rid":"b","prompt":"x"}`, 11, 20), entry(`{"rid":"c","prompt":"y"}`, 0, 20)})
	if quiet.Failed() {
		t.Error("one after the other is taken for two copies")
	}
	onlyOneCopyEach(&quiet, []sim.Entry{entry(`{"rid":"a","prompt":"x"}`, 0, 10), entry(`{"rid":"b","prompt":"x"}`, 5, 20)})
	if !quiet.Failed() {
		t.Error("two copies were not found")
	}
}
