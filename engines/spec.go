package engines

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"
)

// Kind is what an engine is, as far as the proxy must know: how a request is cancelled, where facts are read.
type Kind string

const (
	Detect Kind = ""       // found out by asking
	VLLM   Kind = "vllm"   // stops when the connection closes
	SGLang Kind = "sglang" // stops at once only by /abort_request
	Custom Kind = "custom" // anything else; must stop when the connection closes
)

// DefaultMaxIdle is how long an unused connection is kept: vLLM and SGLang close theirs after 5 s.
const DefaultMaxIdle = 3 * time.Second

// Spec is what the operator says about an engine.
type Spec struct {
	Name     string   // "" = address; unique in a fleet
	URL      string   // base URL, see ParseTarget
	Kind     Kind     // Detect to ask
	APIKey   string   `json:"-"` // sent as Bearer token on requests and probes; "" = the client's own passes
	Weight   float64  // share of the ring; 0 = 1
	KVTokens int64    // capacity in tokens, used while the engine reports none; 0 = unknown
	Models   []string // serve only these; nil = all it lists

	HealthPath         string            // "" = /health
	InsecureSkipVerify bool              // accept any certificate
	CAFile             string            // PEM file of authorities; "" = the system's
	ServerName         string            // name in the certificate; "" = the host of the URL
	MaxIdle            time.Duration     // keep unused connections this long; 0 = DefaultMaxIdle
	Headers            map[string]string `json:"-"` // set on every request and probe; values are secrets
}

// Format keeps every verb of fmt from showing the key: a Spec prints as its name and URL.
func (s Spec) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Name+" ("+s.shownURL()+")") }

// LogValue is what slog shows.
func (s Spec) LogValue() slog.Value { return slog.StringValue(s.Name) }

func (s Spec) shownURL() string {
	t, err := ParseTarget(s.URL)
	if err != nil {
		return "bad URL"
	}
	return t.String()
}

// complete fills in the defaults and refuses what cannot work.
func (s Spec) complete() (Spec, Target, error) {
	t, err := ParseTarget(s.URL)
	if err != nil {
		return s, t, fmt.Errorf("engine %q: %w", s.Name, err)
	}
	if s.Name == "" {
		s.Name = t.Address
	}
	switch s.Kind {
	case Detect, VLLM, SGLang, Custom:
	default:
		return s, t, fmt.Errorf("engine %q: unknown kind %q; one of vllm, sglang, custom", s.Name, string(s.Kind))
	}
	if s.Weight == 0 {
		s.Weight = 1
	}
	if !(s.Weight > 0) || math.IsInf(s.Weight, 0) {
		return s, t, fmt.Errorf("engine %q: weight %v must be above 0", s.Name, s.Weight)
	}
	if s.KVTokens < 0 {
		return s, t, errors.New("engine " + s.Name + ": KV tokens must not be negative")
	}
	if s.HealthPath == "" {
		s.HealthPath = "/health"
	}
	if s.MaxIdle <= 0 {
		s.MaxIdle = DefaultMaxIdle
	}
	return s, t, nil
}
