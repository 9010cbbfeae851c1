package proxy

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

// metricSet counts what happens, a counter beside each event, made beforehand so
// that zero is visible. Label values come from bounded lists: routes are
// templates, engines are the configured ones, models and sessions are no labels.
type metricSet struct {
	set                      *metrics.Set
	ends                     [endReasons]*metrics.Counter
	reasons                  []*metrics.Counter
	ttft                     *metrics.PrometheusHistogram
	took                     *metrics.PrometheusHistogram
	wait                     *metrics.PrometheusHistogram
	resent                   *metrics.Counter
	newsAwaited, newsArrived *metrics.Counter // turns that waited for other proxies' news of their session; and got it
	preempted                *metrics.Counter
	laneWait                 [2]*metrics.PrometheusHistogram // held in the proxy, by lane.Class
	laneExtra                *metrics.PrometheusHistogram    // delay that short turns added to a long one
	panics                   *metrics.Counter
	received                 *metrics.Counter
	sent                     *metrics.Counter
	prompt                   *metrics.Counter
	cached                   *metrics.Counter // by earlier work than the request's own
	own                      *metrics.Counter // cached as well, by slices and runs taken back of the same request
	output                   *metrics.Counter
	predicted                *metrics.Counter
	available                *metrics.Counter
	unknown                  *metrics.Counter

	mu         sync.Mutex
	routes     map[routeStatus]*metrics.Counter
	fallbacks  map[string]*metrics.Counter
	identities map[string]*metrics.Counter
}

type engineMetrics struct {
	requests, prompt, cached, slices, slicesFailed *metrics.Counter
}

type routeStatus struct {
	route string
	class int
}

// Seconds of the histograms' upper bounds: from a warm short turn on a fast
// engine to the longest prefill.
var secondBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

func newMetricSet(s *Server) *metricSet {
	set := metrics.NewSet()
	m := &metricSet{
		set:         set,
		ttft:        set.NewPrometheusHistogramExt("warmring_ttft_seconds", secondBounds),
		took:        set.NewPrometheusHistogramExt("warmring_request_seconds", secondBounds),
		wait:        set.NewPrometheusHistogramExt("warmring_wait_seconds", secondBounds),
		resent:      set.NewCounter("warmring_resent_total"),
		newsAwaited: set.NewCounter("warmring_news_awaited_total"),
		newsArrived: set.NewCounter("warmring_news_arrived_total"),
		preempted:   set.NewCounter("warmring_preemptions_total"),
		laneExtra:   set.NewPrometheusHistogramExt("warmring_lane_extra_delay_seconds", secondBounds),
		panics:      set.NewCounter("warmring_panics_total"),
		received:    set.NewCounter("warmring_received_bytes_total"),
		sent:        set.NewCounter("warmring_sent_bytes_total"),
		prompt:      set.NewCounter("warmring_prompt_tokens_total"),
		cached:      set.NewCounter("warmring_cached_tokens_total"),
		own:         set.NewCounter("warmring_own_cached_tokens_total"),
		output:      set.NewCounter("warmring_output_tokens_total"),
		predicted:   set.NewCounter("warmring_predicted_warm_tokens_total"),
		available:   set.NewCounter("warmring_available_warm_tokens_total"),
		unknown:     set.NewCounter("warmring_cached_unknown_total"),
		routes:      make(map[routeStatus]*metrics.Counter),
		fallbacks:   make(map[string]*metrics.Counter),
		identities:  make(map[string]*metrics.Counter),
	}
	for _, class := range [...]lane.Class{lane.Interactive, lane.Long} {
		m.laneWait[class] = set.NewPrometheusHistogramExt(fmt.Sprintf(`warmring_lane_wait_seconds{lane=%q}`, class), secondBounds)
	}
	for e := endOK; e < endReasons; e++ {
		m.ends[e] = set.NewCounter(fmt.Sprintf(`warmring_request_ends_total{end=%q}`, e))
	}
	for reason := ring.Reason(0); reason <= ring.Only; reason++ {
		m.reasons = append(m.reasons, set.NewCounter(fmt.Sprintf(`warmring_decisions_total{reason=%q}`, reason)))
	}
	set.NewGauge("warmring_inflight_requests", func() float64 { return float64(s.live.count()) })
	set.NewGauge("warmring_waiting_requests", func() float64 { return float64(s.waiters.n.Load()) })
	set.NewGauge("warmring_waiting_shed_total", func() float64 { return float64(s.waiters.shed.Load()) })
	set.NewGauge("warmring_prompt_recalls_total", func() float64 { return float64(s.memory.Stats().Hits) })
	set.NewGauge("warmring_prompt_recall_misses_total", func() float64 { return float64(s.memory.Stats().Misses) })
	set.NewGauge("warmring_prompt_memory_evicted_total", func() float64 { return float64(s.memory.Stats().Evicted) })
	set.NewGauge("warmring_prompt_memory_shed_total", func() float64 { return float64(s.memory.Stats().Shed) })
	set.NewGauge("warmring_uptime_seconds", func() float64 { return time.Since(s.started).Seconds() })
	s.countReloads(set)
	for _, up := range s.upstreams() {
		m.addEngine(up)
	}
	return m
}

// The series of one engine, which come and go with it: names that reloads brought once must not stay for ever.
const (
	engineRequests    = `warmring_engine_requests_total{engine=%q}`
	enginePrompt      = `warmring_engine_prompt_tokens_total{engine=%q}`
	engineCached      = `warmring_engine_cached_tokens_total{engine=%q}`
	engineSlices      = `warmring_slices_total{engine=%q}`
	engineSliceFailed = `warmring_slice_failures_total{engine=%q}`
	engineUp          = `warmring_engine_up{engine=%q}`
	engineConnections = `warmring_engine_connections{engine=%q}`
	engineDials       = `warmring_engine_dials_total{engine=%q}`
	engineStale       = `warmring_engine_stale_connections_total{engine=%q}`
)

// addEngine makes the series of an engine that has none.
func (m *metricSet) addEngine(up *upstream) {
	named := func(series string) string { return fmt.Sprintf(series, up.Name) }
	up.metrics = &engineMetrics{requests: m.set.NewCounter(named(engineRequests)), prompt: m.set.NewCounter(named(enginePrompt)), cached: m.set.NewCounter(named(engineCached)),
		slices: m.set.NewCounter(named(engineSlices)), slicesFailed: m.set.NewCounter(named(engineSliceFailed))}
	m.set.NewGauge(named(engineUp), func() float64 {
		if st := placerState(up.State()); st == ring.Ready || st == ring.Busy {
			return 1
		}
		return 0
	})
	m.set.NewGauge(named(engineConnections), func() float64 { return float64(up.pool.Open()) })
	m.set.NewGauge(named(engineDials), func() float64 { return float64(up.pool.Dials.Load()) })
	m.set.NewGauge(named(engineStale), func() float64 { return float64(up.pool.Stale.Load()) })
}

// removeEngine takes the series of an engine away. Requests that still end there count into nothing.
func (m *metricSet) removeEngine(name string) {
	for _, series := range [...]string{engineRequests, enginePrompt, engineCached, engineSlices, engineSliceFailed, engineUp, engineConnections, engineDials, engineStale} {
		m.set.UnregisterMetric(fmt.Sprintf(series, name))
	}
}

func (m *metricSet) decision(reason ring.Reason) { m.reasons[reason].Inc() }

// unparsed counts a body whose prompt could not be read; reasons come from a
// fixed list in ring/prompt.
func (m *metricSet) unparsed(reason string) {
	m.labelled(m.fallbacks, "warmring_unparsed_total", "reason", reason).Inc()
}

func (m *metricSet) labelled(in map[string]*metrics.Counter, name, label, value string) *metrics.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := in[value]
	if c == nil {
		if len(in) >= 64 {
			value = "other"
		}
		c = m.set.GetOrCreateCounter(fmt.Sprintf(`%s{%s=%q}`, name, label, value))
		in[value] = c
	}
	return c
}

func (m *metricSet) route(template string, status int) *metrics.Counter {
	key := routeStatus{template, status / 100}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.routes[key]
	if c == nil {
		c = m.set.GetOrCreateCounter(fmt.Sprintf(`warmring_requests_total{route=%q,status="%dxx"}`, template, key.class))
		m.routes[key] = c
	}
	return c
}

func (m *metricSet) malformed(template string, status int) {
	m.route(template, status).Inc()
	m.ends[endClientError].Inc()
}

// finished counts a request at its end.
func (m *metricSet) finished(r *request, took time.Duration) {
	m.route(r.route.Template, r.status).Inc()
	m.ends[r.end].Inc()
	m.received.Add(r.received)
	m.sent.AddInt64(r.sent)
	m.took.Update(took.Seconds())
	if r.waited > 0 {
		m.wait.Update(r.waited.Seconds())
	}
	if r.up == nil {
		return
	}
	e := r.up.metrics
	e.requests.Inc()
	if !r.route.Generation {
		return
	}
	source := r.identity.Source
	if source == "" {
		source = "prefix"
	}
	m.labelled(m.identities, "warmring_identified_total", "source", source).Inc()
	if r.firstByte > 0 {
		m.ttft.Update(r.firstByte.Seconds())
	}
	if status := &r.lane.status; status.State != "" {
		m.laneWait[status.Class].Update(status.HeldSeconds)
		if status.Class == lane.Long {
			m.laneExtra.Update(status.ExtraSeconds)
		}
	}
	if r.usage.Prompt < 0 {
		return
	}
	m.prompt.Add(r.usage.Prompt)
	m.output.Add(max(r.usage.Output, 0))
	e.prompt.Add(r.usage.Prompt)
	m.predicted.Add(r.decision.Warm)
	m.available.Add(r.decision.Available)
	if r.usage.Cached < 0 {
		m.unknown.Inc() // unknown is not zero
		return
	}
	m.cached.Add(r.usage.Cached - r.own)
	e.cached.Add(r.usage.Cached - r.own)
	m.own.Add(r.own)
}

// write gives everything in Prometheus' text form.
func (m *metricSet) write(s *Server, w io.Writer) {
	m.set.WritePrometheus(w)
	writePlacement(w, s.placer)
	writeCluster(w, s.cluster.Load())
	writeReadings(w, s)
	writeLanes(w, s)
	metrics.WriteProcessMetrics(w)
}

// writePlacement gives the placer's gauges and totals. The first three are 0 when
// nothing runs.
func writePlacement(w io.Writer, p *ring.Placer) {
	g := p.Gauges()
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"charged_fresh_tokens", float64(g.Waiting)},
		{"running_prefills", float64(g.Queued)},
		{"running_decodes", float64(g.Running)},
		{"held_context_tokens", float64(g.Held)},
		{"context_tokens", float64(g.Context)},
		{"sessions", float64(g.Sessions)},
		{"active_sessions", float64(g.ActiveSessions)},
		{"session_bytes", float64(g.SessionBytes)},
		{"index_tokens", float64(g.IndexTokens)},
		{"index_points", float64(g.IndexPoints)},
		{"index_bytes", float64(g.IndexBytes)},
		{"sessions_created_total", float64(g.Totals.Sessions)},
		{"sessions_expired_total", float64(g.Totals.Expired)},
		{"sessions_shed_total", float64(g.Totals.SessionsShed)},
		{"index_evicted_total", float64(g.Totals.Evicted)},
		{"index_shed_total", float64(g.Totals.IndexShed)},
		{"index_corrected_total", float64(g.Totals.Corrected)},
		{"index_forgotten_total", float64(g.Totals.Forgotten)},
		{"placements_unknown_model_total", float64(g.Totals.UnknownModel)},
		{"placements_no_engine_total", float64(g.Totals.NoEngine)},
	} {
		fmt.Fprintf(w, "warmring_%s %v\n", m.name, m.value)
	}
	for _, e := range p.Snapshot() {
		fmt.Fprintf(w, "warmring_engine_charged_fresh_tokens{engine=%q} %d\n", e.Name, e.Waiting)
		fmt.Fprintf(w, "warmring_engine_running_decodes{engine=%q} %d\n", e.Name, e.Running)
		fmt.Fprintf(w, "warmring_engine_context_tokens{engine=%q} %d\n", e.Name, e.Context)
		fmt.Fprintf(w, "warmring_engine_kv_tokens{engine=%q} %d\n", e.Name, e.Capacity)
		fmt.Fprintf(w, "warmring_engine_index_tokens{engine=%q} %d\n", e.Name, e.IndexTokens)
		fmt.Fprintf(w, "warmring_engine_sessions{engine=%q} %d\n", e.Name, e.Sessions)
		fmt.Fprintf(w, "warmring_engine_prefill_tokens_per_second{engine=%q} %v\n", e.Name, e.PrefillRate)
	}
}
