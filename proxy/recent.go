package proxy

import (
	"sync"
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

// maxRecent is how many finished requests /api/explain can still tell about.
const maxRecent = 4096

// Explanation is why a request went where it went, and what came of it.
type Explanation struct {
	Request    string           `json:"request"`
	Time       time.Time        `json:"time"`
	Route      string           `json:"route"`
	Model      string           `json:"model,omitempty"`
	Source     string           `json:"identity,omitempty"` // where the session id was found; empty: by the prompt
	Session    string           `json:"session,omitempty"`
	Turn       int              `json:"turn,omitempty"`
	Extends    bool             `json:"extends"`
	Engine     string           `json:"engine,omitempty"`
	Home       string           `json:"home,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Attempts   int              `json:"attempts"`
	Warm       int              `json:"warm_tokens"`
	Available  int              `json:"available_warm_tokens"`
	Prompt     int              `json:"prompt_tokens_estimated"`
	RealPrompt int              `json:"prompt_tokens"`
	RealCached int              `json:"cached_tokens"`        // by earlier work than its own; -1: the engine did not say
	Own        int              `json:"own_tokens,omitempty"` // cached as well, by runs of this very request: its slices, and what was taken back
	Candidates []ring.Candidate `json:"candidates,omitempty"`
	Status     int              `json:"status"`
	End        string           `json:"end"`
	Lane       string           `json:"lane,omitempty"`
	HeldMS     float64          `json:"held_ms,omitempty"`  // in its lane
	ExtraMS    float64          `json:"extra_ms,omitempty"` // of these and of lost steps, for short turns
	Slices     int              `json:"slices,omitempty"`
	Preempted  int              `json:"preempted,omitempty"`
	WaitMS     float64          `json:"wait_ms"`
	TTFTMS     float64          `json:"ttft_ms"`
	TookMS     float64          `json:"took_ms"`
}

// recentRequests is a ring of the last requests, without their text.
type recentRequests struct {
	mu   sync.Mutex
	list []recentRequest
	next int
}

type recentRequest struct {
	id       string
	answerID string // set by the engine
	at       time.Time
	route    string
	model    string
	source   string
	engine   string
	decision ring.Decision
	attempts int
	prompt   int
	cached   int
	status   int
	end      endReason
	wait     time.Duration
	ttft     time.Duration
	took     time.Duration

	lane              lane.Status // State is empty: it was in none
	slices, preempted int
	own               int
}

func newRecentRequests() *recentRequests {
	return &recentRequests{list: make([]recentRequest, 0, 64)}
}

func (l *recentRequests) add(r *request, took time.Duration) {
	e := recentRequest{
		id: r.id, answerID: r.answerID, at: r.started, route: r.route.Template, model: r.model, source: r.identity.Source, decision: r.decision, attempts: r.attempts,
		prompt: r.usage.Prompt, cached: r.usage.Cached - r.own, status: r.status, end: r.end, wait: r.waited, ttft: r.firstByte, took: took,
		lane: r.lane.status, slices: r.lane.slices, preempted: r.lane.preempted, own: r.own,
	}
	if r.up != nil {
		e.engine = r.up.Name
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) < maxRecent {
		l.list = append(l.list, e)
		return
	}
	l.list[l.next] = e
	l.next = (l.next + 1) % maxRecent
}

// explain finds the newest request of that id.
func (l *recentRequests) explain(id string) (Explanation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.list) - 1; i >= 0; i-- {
		e := &l.list[(l.next+i)%len(l.list)]
		if e.id == id || (e.answerID != "" && e.answerID == id) {
			return e.explanation(), true
		}
	}
	return Explanation{}, false
}

func (e *recentRequest) explanation() Explanation {
	d := &e.decision
	x := Explanation{
		Request: e.id, Time: e.at, Route: e.route, Model: e.model, Source: e.source, Turn: d.Turn, Extends: d.Extends, Engine: e.engine, Home: d.Home,
		Attempts: e.attempts, Warm: d.Warm, Available: d.Available, Prompt: d.Prompt, RealPrompt: e.prompt, RealCached: e.cached,
		Status: e.status, End: e.end.String(), WaitMS: milliseconds(e.wait), TTFTMS: milliseconds(e.ttft), TookMS: milliseconds(e.took),
	}
	if e.engine != "" {
		x.Reason = d.Reason.String()
		x.Candidates = append(x.Candidates, d.Runners[:d.N]...)
	}
	if e.lane.State != "" {
		x.Lane, x.HeldMS, x.ExtraMS = e.lane.Class.String(), inMilliseconds(e.lane.HeldSeconds), inMilliseconds(e.lane.ExtraSeconds)
	}
	x.Slices, x.Preempted, x.Own = e.slices, e.preempted, e.own
	if d.Session != 0 {
		x.Session = string(appendHex16(nil, d.Session))
	}
	return x
}
