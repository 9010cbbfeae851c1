package sim

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// faultOrder is a Fault as JSON.
type faultOrder struct {
	Kind       FaultKind `json:"kind"`
	Count      int       `json:"count"`
	Path       string    `json:"path"`
	Contains   string    `json:"contains"`
	Status     int       `json:"status"`
	Message    string    `json:"message"`
	RetryAfter string    `json:"retry_after"`
	After      int       `json:"after"`
	DelayMS    float64   `json:"delay_ms"`
	Bytes      int       `json:"bytes"`
}

func (o faultOrder) fault() Fault {
	return Fault{Kind: o.Kind, Count: o.Count, Path: o.Path, Contains: o.Contains, Status: o.Status, Message: o.Message,
		RetryAfter: o.RetryAfter, After: o.After, Delay: time.Duration(o.DelayMS * float64(time.Millisecond)), Bytes: o.Bytes}
}

// control answers under /sim/:
//
//	GET    /sim/log?path=PREFIX  the journal
//	DELETE /sim/log              empties it
//	POST   /sim/fault            one fault or a list of them
//	DELETE /sim/fault            clears all
//	GET    /sim/stats            counters and levels
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	reply := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /sim/log":
		entries, dropped, _ := s.journal.read()
		list := make([]Entry, 0, len(entries))
		for _, e := range entries {
			if strings.HasPrefix(e.Path, r.URL.Query().Get("path")) {
				list = append(list, e)
			}
		}
		reply(http.StatusOK, map[string]any{"requests": list, "dropped": dropped})
	case "DELETE /sim/log":
		s.ClearLog()
		reply(http.StatusOK, map[string]any{})
	case "GET /sim/stats":
		reply(http.StatusOK, s.engine.Stats())
	case "DELETE /sim/fault":
		s.ClearFaults()
		reply(http.StatusOK, map[string]any{})
	case "POST /sim/fault":
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		var orders []faultOrder
		if err == nil {
			if trimmed := strings.TrimSpace(string(body)); strings.HasPrefix(trimmed, "[") {
				err = json.Unmarshal(body, &orders)
			} else {
				var one faultOrder
				err = json.Unmarshal(body, &one)
				orders = append(orders, one)
			}
		}
		for _, o := range orders {
			if err == nil {
				err = s.Inject(o.fault())
			}
		}
		if err != nil {
			reply(http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		reply(http.StatusOK, map[string]int{"ordered": len(orders)})
	default:
		reply(http.StatusNotFound, map[string]string{"error": "no such page: log, fault and stats are under /sim/"})
	}
}
