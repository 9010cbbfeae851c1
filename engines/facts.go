package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// sources are the pages that an engine turned out to have; only these are read again.
type sources uint8

const (
	fromMetrics sources = 1 << iota // /metrics in Prometheus text
	fromLoads                       // /v1/loads of SGLang
	fromProps                       // /props of llama.cpp
)

// reading is what one round of asking found out. Negative numbers are unknown.
type reading struct {
	kind             Kind
	version          string
	start            float64 // Unix seconds
	work             float64 // a counter that only a restart sets back
	workFrom         sources // where it was read: counters of two pages cannot be compared
	kvTokens         int64
	running, waiting int
	kvUsage          float64
	restarted        bool
	incomplete       bool // a page did not answer: what is missing may still be there
}

// readFacts asks for capacity, load and identity. The first time, and whenever the engine comes back, it asks all pages that any kind has; afterwards only the ones that answered.
func (p *prober) readFacts(ctx context.Context, returning bool, owner string) *reading {
	r := &reading{start: -1, work: -1, kvTokens: -1, running: -1, waiting: -1, kvUsage: -1}
	all := returning || !p.settled
	if all {
		p.sources = 0
	}
	kind := p.e.Spec.Kind
	if all || p.sources&fromMetrics != 0 {
		p.readMetrics(ctx, r)
	}
	if all && (kind == VLLM || r.kind == VLLM || kind == Detect && r.kind == Detect) {
		p.readVersion(ctx, r, owner)
	}
	if p.sources&fromLoads != 0 || all && r.kind != VLLM && kind != VLLM {
		p.readLoads(ctx, r)
	}
	if all && r.kind == Detect && kind == Detect {
		p.readModelInfo(ctx, r)
	}
	if p.sources&fromProps != 0 || all && r.kind == Detect && (kind == Detect || kind == Custom) {
		p.readProps(ctx, r)
	}
	if all && !r.incomplete {
		if r.kind == Detect {
			r.kind = Custom
		}
		p.settled = true
	}
	return r
}

func (p *prober) page(ctx context.Context, r *reading, path string, limit int64) []byte {
	status, body, err := p.client.get(ctx, path, limit)
	if err != nil {
		r.incomplete = true
		return nil
	}
	if status >= 500 {
		r.incomplete = true
	}
	if status != 200 {
		return nil
	}
	return body
}

func (p *prober) readMetrics(ctx context.Context, r *reading) {
	body := p.page(ctx, r, "/metrics", pageLimit)
	if body == nil || bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) { // TensorRT-LLM answers JSON here
		return
	}
	m := readMetrics(body)
	r.start, r.work, r.kvTokens, r.kvUsage = m.start, m.work, m.kvTokens, m.kvUsage
	r.running, r.waiting, r.workFrom = int(m.running), int(m.waiting), fromMetrics
	switch {
	case m.vllm:
		r.kind = VLLM
	case m.sglang:
		r.kind = SGLang
	}
	if m.vllm || m.sglang || m.work >= 0 || m.start >= 0 {
		p.sources |= fromMetrics
	}
}

// readVersion also settles a vLLM whose metrics are off, by what its models say of their owner: /version alone is not enough, since others have one, too.
func (p *prober) readVersion(ctx context.Context, r *reading, owner string) {
	body := p.page(ctx, r, "/version", factsLimit)
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil || text(answer["version"]) == "" {
		return
	}
	r.version = text(answer["version"])
	if r.kind == Detect && owner == "vllm" {
		r.kind = VLLM
	}
}

// readLoads reads SGLang's load page, which needs no flag. Ranks add up.
func (p *prober) readLoads(ctx context.Context, r *reading) {
	body := p.page(ctx, r, "/v1/loads?include=core", factsLimit)
	var answer struct {
		Version string `json:"version"`
		Loads   []struct {
			Running  *float64 `json:"num_running_reqs"`
			Waiting  *float64 `json:"num_waiting_reqs"`
			Capacity *float64 `json:"max_total_num_tokens"`
			Usage    *float64 `json:"token_usage"`
			Computed *float64 `json:"total_prefill_uncached_tokens"`
		} `json:"loads"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Loads) == 0 {
		return
	}
	running, waiting, capacity, computed := -1.0, -1.0, -1.0, -1.0
	sum := func(total *float64, v *float64) {
		if v != nil && *v >= 0 && *v < 1<<50 {
			*total = max(*total, 0) + *v
		}
	}
	for _, load := range answer.Loads {
		sum(&running, load.Running)
		sum(&waiting, load.Waiting)
		sum(&capacity, load.Capacity)
		sum(&computed, load.Computed)
		if load.Usage != nil {
			r.kvUsage = max(r.kvUsage, *load.Usage)
		}
	}
	r.kind, r.version = SGLang, answer.Version
	r.running, r.waiting = int(running), int(waiting)
	if capacity > 0 {
		r.kvTokens = int64(capacity)
	}
	if computed >= 0 { // rather than the counters of /metrics, which are absent until they first count
		r.work, r.workFrom = computed, fromLoads
	}
	p.sources |= fromLoads
}

// readModelInfo settles an SGLang that is too old for /v1/loads.
func (p *prober) readModelInfo(ctx context.Context, r *reading) {
	body := p.page(ctx, r, "/model_info", factsLimit)
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) == nil && answer["model_path"] != nil && answer["is_generation"] != nil {
		r.kind = SGLang
	}
}

// readProps reads llama.cpp's slots: each holds its own context.
func (p *prober) readProps(ctx context.Context, r *reading) {
	body := p.page(ctx, r, "/props", factsLimit)
	var answer struct {
		Slots    int    `json:"total_slots"`
		Build    string `json:"build_info"`
		Defaults struct {
			Context int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Slots <= 0 || answer.Slots > 1<<16 || answer.Defaults.Context <= 0 || answer.Defaults.Context > 1<<32 {
		return
	}
	r.kvTokens = int64(answer.Slots) * answer.Defaults.Context
	if answer.Build != "" {
		r.version = "llama.cpp " + answer.Build
	}
	p.sources |= fromProps
}

// setFacts takes a reading of a time over, with the engine's lock held, and finds out whether this is another process (C111).
func (e *Engine) setFacts(at time.Time, r *reading) (change Change) {
	f := &e.facts
	if e.restarted(r) {
		change |= Restarted
		e.counts.Restarts++
		f.StartTime, e.work = 0, -1
		e.health.breaker = breaker{} // those were another process's faults
	}
	if r.start > 0 {
		f.StartTime = max(f.StartTime, r.start)
	}
	if r.work >= 0 {
		e.work, e.workFrom = r.work, r.workFrom
	}
	if r.kind != Detect && e.Spec.Kind == Detect && r.kind != f.Kind {
		f.Kind = r.kind
		change |= KindChanged
	}
	if r.version != "" {
		f.Version = r.version
	}
	if before := e.kvTokens(); r.kvTokens > 0 && r.kvTokens != f.KVTokens {
		f.KVTokens = r.kvTokens
		if e.kvTokens() != before {
			change |= CapacityChanged
		}
	}
	f.Running, f.Waiting, f.KVUsage, f.FactsAt = r.running, r.waiting, r.kvUsage, at
	return change
}

// restarted tells whether the process is another one than before: it started later, or counts from zero again; or, where neither can be seen, its connections broke and it was away. A start
// time that goes back is no restart: an endpoint may have several processes.
func (e *Engine) restarted(r *reading) bool {
	h, f := &e.health, &e.facts
	if !e.everReady {
		return false
	}
	switch {
	case f.StartTime > 0 && r.start > 0:
		return r.start > f.StartTime+1
	case e.work >= 0 && r.work >= 0 && e.workFrom == r.workFrom:
		return r.work < e.work
	}
	return h.lost && h.base != Ready
}
