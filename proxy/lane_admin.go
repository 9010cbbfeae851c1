package proxy

import (
	"cmp"
	"slices"
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

// maxLaneRequests bounds the requests listed of one engine's lanes.
const maxLaneRequests = 500

// lanesView is one engine's lanes with the requests in them, up to their first
// token.
type lanesView struct {
	Engine   string        `json:"engine"`
	Lanes    lane.View     `json:"lanes"`
	Requests []laneRequest `json:"requests"` // those at the engine first, then by the order in which they came
	More     int           `json:"more,omitempty"`
}

// laneRequest is one request in the lanes. It has no text of the prompt.
type laneRequest struct {
	Request string `json:"request"`
	Session string `json:"session,omitempty"`
	Prompt  int    `json:"prompt_tokens"` // estimated
	Fresh   int    `json:"fresh_tokens"`  // of these, when it came
	Bytes   int    `json:"bytes"`
	lane.Status
	came time.Time
}

// lanesViews are the lanes of all engines, by name.
func (s *Server) lanesViews() []lanesView {
	views := []lanesView{}
	for name, up := range s.upstreams() {
		v := lanesView{Engine: name, Lanes: up.lanes.view()}
		v.Requests, v.More = up.lanes.requests(maxLaneRequests)
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b lanesView) int { return cmp.Compare(a.Engine, b.Engine) })
	return views
}

// requests lists up to limit requests in the lanes, and how many more there are.
func (l *engineLanes) requests(limit int) (list []laneRequest, more int) {
	list = []laneRequest{}
	l.mu.Lock()
	now := l.now()
	for id, r := range l.members {
		status, ok := l.c.Status(now, id)
		if !ok {
			continue
		}
		d := &r.decision // not changed while it is a member
		q := laneRequest{Request: r.id, Prompt: d.Prompt, Fresh: max(d.Prompt-d.Warm, 0), Bytes: r.received, Status: status, came: r.started}
		if d.Session != 0 {
			q.Session = ring.Key(d.Session).String()
		}
		list = append(list, q)
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b laneRequest) int {
		if at := (a.State == "held") != (b.State == "held"); at {
			if a.State == "held" {
				return 1
			}
			return -1
		}
		return a.came.Compare(b.came)
	})
	if len(list) > limit {
		list, more = list[:limit], len(list)-limit
	}
	return list, more
}
