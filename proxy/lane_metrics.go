package proxy

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// writeLanes gives each engine's lanes: what is held now, and what was done.
func writeLanes(w io.Writer, s *Server) {
	ups := s.upstreams()
	for _, name := range slices.Sorted(maps.Keys(ups)) {
		v := ups[name].lanes.view()
		fmt.Fprintf(w, "warmring_lane_way{engine=%q,way=%q} 1\n", name, v.Way)
		for _, m := range []struct {
			name  string
			value float64
		}{
			{"long_held", float64(v.Held + v.Back)},
			{"long_in_prefill", float64(v.InFlight)},
			{"interactive_waiting", float64(v.Waiting)},
			{"held_total", float64(v.Totals.Held)},
			{"admitted_total", float64(v.Totals.Admitted)},
			{"preempted_total", float64(v.Totals.Preempted)},
			{"expired_total", float64(v.Totals.Expired)},
			{"full_total", float64(v.Totals.Full)},
			{"crowded_total", float64(v.Totals.Crowded)},
			{"immune_total", float64(v.Totals.Immune)},
			{"slices_lost_total", float64(v.Totals.SlicesLost)},
			{"slices_refused_total", float64(v.Totals.SlicesRefused)},
			{"slice_seconds_total", v.Totals.SliceSeconds},
			{"lost_seconds_total", v.Totals.LostSeconds},
			{"border_tokens", float64(v.Border)},
		} {
			fmt.Fprintf(w, "warmring_lane_%s{engine=%q} %v\n", m.name, name, m.value)
		}
	}
}
