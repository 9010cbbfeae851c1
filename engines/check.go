package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Report is what one engine answered to Check.
type Report struct {
	Name        string        `json:"name"`
	URL         string        `json:"url"`
	State       State         `json:"state"`
	Reason      string        `json:"reason,omitempty"`
	Kind        Kind          `json:"kind"`
	Version     string        `json:"version,omitempty"`
	Health      time.Duration `json:"health_ns"` // how long the probe of its health took
	Models      []Model       `json:"-"`
	KVTokens    int64         `json:"kv_tokens"`     // 0 = unknown
	Reported    bool          `json:"kv_reported"`   // by the engine, not by the configuration
	Generated   bool          `json:"generated"`     // it answered a request of one token
	Answer      time.Duration `json:"answer_ns"`     // how long that took
	CachedKnown bool          `json:"cached_tokens"` // and its usage had cached tokens, even 0
	Hints       []string      `json:"hints,omitempty"`
}

// CheckOptions are the knobs of Check; the zero value works.
type CheckOptions struct {
	ProbeTimeout    time.Duration // 0 = 5 s
	GenerateTimeout time.Duration // 0 = 15 s
	NoGenerate      bool          // send no request of one token; whether cached tokens are reported then stays unknown
}

// Check asks each engine once, all at the same time, and tells what it found: for people who set a fleet up. It sends a handful of GETs and, unless told not to, one request for one token. An
// engine that does not answer is a finding, not an error; the error is for specs that cannot work.
func Check(ctx context.Context, specs []Spec, opt CheckOptions) ([]Report, error) {
	if opt.ProbeTimeout <= 0 {
		opt.ProbeTimeout = 5 * time.Second
	}
	if opt.GenerateTimeout <= 0 {
		opt.GenerateTimeout = 15 * time.Second
	}
	f, err := NewFleet(specs, FleetOptions{ProbeTimeout: opt.ProbeTimeout})
	if err != nil {
		return nil, err
	}
	reports := make([]Report, len(f.Engines()))
	var all sync.WaitGroup
	for i, e := range f.Engines() {
		all.Go(func() { reports[i] = check(ctx, e, opt) })
	}
	all.Wait()
	return reports, ctx.Err()
}

func check(ctx context.Context, e *Engine, opt CheckOptions) Report {
	p := newProber(e)
	begin := time.Now()
	_, _, err := p.client.get(ctx, e.HealthPath, factsLimit)
	took := time.Since(begin)
	p.round(ctx)
	f := e.Facts()
	r := Report{
		Name: e.Name, URL: e.Target.String(), State: e.State(), Reason: e.Reason(), Kind: f.Kind, Version: f.Version, Models: f.Models,
		KVTokens: e.KVTokens(), Reported: f.KVTokens > 0,
	}
	if err == nil {
		r.Health = took
	}
	if r.State == Ready && !opt.NoGenerate && len(f.Models) > 0 {
		begin = time.Now()
		r.Generated, r.CachedKnown = p.generate(ctx, f.Models[0].ID, opt.GenerateTimeout)
		r.Answer = time.Since(begin)
	}
	r.Hints = hints(&r, opt)
	return r
}

// generate asks for one token, as a completion and, where there is none, as a chat; cached tells whether the usage has cached tokens.
func (p *prober) generate(ctx context.Context, model string, timeout time.Duration) (ok, cached bool) {
	for _, try := range []struct {
		path, key string
		prompt    any
	}{
		{"/v1/completions", "prompt", "Hello"},
		{"/v1/chat/completions", "messages", []map[string]string{{"role": "user", "content": "Hello"}}},
	} {
		body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 1, try.key: try.prompt})
		if err != nil {
			return false, false
		}
		status, answer, err := p.client.do(ctx, "POST", try.path, body, factsLimit, timeout)
		if err != nil || status != 200 {
			continue
		}
		var got struct {
			Usage struct {
				Details map[string]json.RawMessage `json:"prompt_tokens_details"`
			} `json:"usage"`
			Timings map[string]json.RawMessage `json:"timings"`
		}
		if json.Unmarshal(answer, &got) != nil {
			continue
		}
		known := func(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }
		return true, known(got.Usage.Details["cached_tokens"]) || known(got.Timings["cache_n"])
	}
	return false, false
}

// hints are what an operator could do better, most useful first.
func hints(r *Report, opt CheckOptions) []string {
	var out []string
	hint := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.State != Ready {
		return out
	}
	if r.Generated && !r.CachedKnown {
		switch r.Kind {
		case VLLM:
			hint("start it with --enable-prompt-tokens-details: its answers then say how much was cached, which is how placement is verified")
		case SGLang:
			hint("start it with --enable-cache-report: its answers then say how much was cached, which is how placement is verified")
		default:
			hint("let it report usage.prompt_tokens_details.cached_tokens: it is how placement is verified")
		}
	}
	if !r.Generated && !opt.NoGenerate {
		hint("it did not answer a request of one token within %v", opt.GenerateTimeout)
	}
	switch {
	case r.KVTokens == 0:
		hint("it does not report its KV capacity: set kv_tokens, or sessions are placed without knowing when its cache is full")
	}
	switch r.Kind {
	case VLLM:
		hint("VLLM_HTTP_TIMEOUT_KEEP_ALIVE=75 in its environment keeps connections alive between turns; then set max_idle = \"70s\"")
		if older(r.Version, 0, 17, 2) {
			hint("versions up to 0.17.1 keep Claude Code's billing line in the prompt and miss their cache on each request: update, or set identity.strip_billing_line")
		}
	case SGLang:
		hint("SGLANG_TIMEOUT_KEEP_ALIVE=75 in its environment keeps connections alive between turns; then set max_idle = \"70s\"")
		if older(r.Version, 0, 5, 20) {
			hint("versions before 0.5.20 go on computing for clients that left: update")
		}
		if r.Health > 500*time.Millisecond {
			hint("its health page generates a token (%v): SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false makes it cheap", r.Health.Round(10*time.Millisecond))
		}
		hint("--enable-mixed-chunk keeps running answers going while a long prompt is read")
	case Custom:
		if r.Health > 500*time.Millisecond {
			hint("its health page took %v; it should answer within 100ms even while a prompt is read", r.Health.Round(10*time.Millisecond))
		}
	}
	return out
}

// older tells whether a version is below major.minor.patch; one that cannot be read is not.
func older(version string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &a, &b, &c); n < 2 {
		return false
	}
	return a != major && a < major || a == major && (b < minor || b == minor && c < patch)
}

// String is the report for a terminal.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "engine %s (%s): %s", r.Name, r.URL, r.State)
	if r.Reason != "" {
		fmt.Fprintf(&b, " – %s", r.Reason)
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "\n  %-15s", name)
		fmt.Fprintf(&b, format, args...)
	}
	if r.Kind != Detect {
		line("kind", "%s %s", r.Kind, r.Version)
	}
	if r.Health > 0 {
		line("health", "answered in %v", r.Health.Round(time.Millisecond))
	}
	for _, m := range r.Models {
		length := "max_model_len unknown"
		if m.MaxModelLen > 0 {
			length = fmt.Sprintf("max_model_len %d", m.MaxModelLen)
		}
		if m.Parent != "" {
			length += ", adapter of " + m.Parent
		}
		line("model", "%s (%s)", m.ID, length)
	}
	if r.State == Ready {
		switch {
		case r.KVTokens == 0:
			line("KV cache", "unknown")
		case r.Reported:
			line("KV cache", "%d tokens", r.KVTokens)
		default:
			line("KV cache", "%d tokens, as configured", r.KVTokens)
		}
		switch {
		case r.CachedKnown:
			line("cached tokens", "reported")
		case r.Generated:
			line("cached tokens", "not reported")
		default:
			line("cached tokens", "unknown")
		}
		if r.Generated {
			line("first request", "answered in %v", r.Answer.Round(time.Millisecond))
		}
	}
	for _, hint := range r.Hints {
		line("hint", "%s", hint)
	}
	return b.String()
}
