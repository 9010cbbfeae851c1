package proxy

import (
	"fmt"
	"io"
	"math"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring/gossip"
)

// One proxy reads an engine's load page and tells the others what it found. Each asks for its health itself, and looks for itself before
// anything that is told would change how it uses an engine.

// readingTurn is how many proxies come before this one in reading an engine's pages.
func (s *Server) readingTurn(engine string) int {
	if c := s.cluster.Load(); c != nil {
		return c.Turn(engine)
	}
	return 0
}

// tellReading tells the others what was just read here.
func (s *Server) tellReading(e *engines.Engine) {
	c := s.cluster.Load()
	d, ok := e.Digest()
	if c == nil || !ok {
		return
	}
	told := gossip.Digest{
		Age: d.Age, Running: d.Running, Waiting: d.Waiting, Usage: -1, KVTokens: d.KVTokens, Start: d.Start, Work: d.Work, Source: d.Source, Models: d.Models,
	}
	if d.KVUsage >= 0 {
		told.Usage = int(math.Round(min(d.KVUsage, 1) * 1000))
	}
	c.Read(e.Name, told)
}

// readElsewhere takes what another proxy has read.
func (s *Server) readElsewhere(engine string, d gossip.Digest) {
	e := s.fleet.ByName(engine)
	if e == nil {
		return
	}
	heard := engines.Digest{
		Age: d.Age, Running: d.Running, Waiting: d.Waiting, KVUsage: -1, KVTokens: d.KVTokens, Start: d.Start, Work: d.Work, Source: d.Source, Models: d.Models,
	}
	if d.Usage >= 0 {
		heard.KVUsage = float64(d.Usage) / 1000
	}
	e.Heard(heard)
}

// reported is an engine's load in its own words, as last read by whichever proxy; null is unknown.
type reported struct {
	Running *int     `json:"running"`
	Waiting *int     `json:"waiting"`
	KVUsage *float64 `json:"kv_usage"`
	ReadBy  string   `json:"read_by,omitempty"` // the member of the cluster
}

func (s *Server) reported(e *engines.Engine) reported {
	st := e.Status()
	r := reported{Running: st.Running, Waiting: st.Waiting, KVUsage: st.KVUsage}
	if c := s.cluster.Load(); c != nil {
		r.ReadBy = c.ReadBy(e.Name)
	}
	return r
}

// writeReadings counts by which proxy each engine's pages were read, and gives its load in its own words while that is known.
func writeReadings(w io.Writer, s *Server) {
	for _, e := range s.fleet.Engines() {
		st := e.Status()
		fmt.Fprintf(w, "warmring_engine_facts_read_total{engine=%q} %d\n", e.Name, st.Counts.FactsRead)
		fmt.Fprintf(w, "warmring_engine_facts_heard_total{engine=%q} %d\n", e.Name, st.Counts.FactsHeard)
		fmt.Fprintf(w, "warmring_engine_probes_total{engine=%q} %d\n", e.Name, st.Counts.Probes)
		if st.Running != nil {
			fmt.Fprintf(w, "warmring_engine_reported_running{engine=%q} %d\n", e.Name, *st.Running)
		}
		if st.Waiting != nil {
			fmt.Fprintf(w, "warmring_engine_reported_waiting{engine=%q} %d\n", e.Name, *st.Waiting)
		}
		if st.KVUsage != nil {
			fmt.Fprintf(w, "warmring_engine_reported_kv_usage{engine=%q} %v\n", e.Name, *st.KVUsage)
		}
	}
}
