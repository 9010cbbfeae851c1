package config

import "github.com/warmring/warmring/engines"

// Engine is one [[engine]]: one base URL that answers as one cache.
type Engine struct {
	// Name is what logs, headers, metrics and the ring call it. Default: host:port of the URL. The ring is built from names alone: renaming an engine moves its sessions, moving it to another
	// address under the same name does not. Letters, digits and . _ : - [ ], at most 128 characters.
	Name string `toml:"name"`

	// URL is the base, with or without /v1, a path prefix, a trailing slash: "http://10.0.0.1:8000", "https://host/serve/a/v4". Required. No user, no query: the key belongs in api_key_env.
	URL string `toml:"url"`

	// Kind settles what the engine is: "vllm", "sglang" or "custom". Default "": found out by asking. Set it where metrics and version paths are closed, since the kind decides how a
	// request is cancelled.
	Kind string `toml:"kind"`

	// APIKey is sent as "Authorization: Bearer …" on requests and on probes. Default none: the client's own key passes. "${NAME}" is replaced by that environment variable.
	APIKey Secret `toml:"api_key"`

	// APIKeyEnv names the environment variable that holds the key. Default none. Better than api_key: the file then has no secret.
	APIKeyEnv string `toml:"api_key_env"`

	// Weight is the share of the ring, relative to the other engines. Default 1. Above 0, at most 100. A machine of twice the size gets 2. Changing it moves that share of the sessions.
	Weight float64 `toml:"weight"`

	// KVTokens is the capacity of its KV cache in tokens, used while the engine does not report one. Default 0: unknown until learned. Too big: sessions pile up until they push each other
	// out. Too small: sessions spill to cold engines while there was room.
	KVTokens int64 `toml:"kv_tokens"`

	// Models restricts which of its models are served through it, by exact id. Default none: all that it lists. Needed where the engine has no /v1/models, and where it lists several but has one in memory at a time: a request for another would throw that out.
	Models []string `toml:"models"`

	// Health is the path that tells readiness, from the root of the engine. Default "/health"; where that is a 404, listing a model counts as ready.
	Health string `toml:"health"`

	// Preempt tells whether a long prefill may be taken back from this engine and sent again: "auto", "yes" or "no". Default "auto": yes for vLLM and SGLang, which stop at once and
	// keep what they computed; llama.cpp, and own backends that have told of cached tokens, are not stopped, but get long prompts in slices while short turns are there; other own backends get neither. "yes" on an engine that goes on computing after the connection closed makes it
	// compute twice. "no" sends every long prompt once and whole: it is held back before that, neither stopped nor sliced. For engines that keep no prefixes, and for those that are billed by the token.
	Preempt string `toml:"preempt"`

	// TLS matters for https URLs only.
	TLS EngineTLS `toml:"tls"`

	// MaxIdle is how long an unused connection to this engine is kept for the next request. Default 3s. vLLM and SGLang close after 5 s: a value near or above theirs meets connections that
	// die while a request is being sent; far below, every turn pays a new connection. Raise both sides together.
	MaxIdle Duration `toml:"max_idle"`

	// Headers are set on every request and probe to this engine, for gateways in between. Values are treated as secrets. Default none.
	Headers map[string]Secret `toml:"headers"`
}

// EngineTLS is how an engine's certificate is checked.
type EngineTLS struct {
	// SkipVerify accepts any certificate. Default false. Anybody in between can then read prompts and keys; use ca for a private authority.
	SkipVerify bool `toml:"skip_verify"`

	// CA is a PEM file of the authorities to trust instead of the system's. Default none.
	CA string `toml:"ca"`

	// ServerName is the name that the certificate must carry. Default: the host of the URL.
	ServerName string `toml:"server_name"`
}

func defaultEngine() Engine {
	return Engine{Weight: 1, Health: "/health", Preempt: "auto", MaxIdle: Duration(engines.DefaultMaxIdle)}
}

// Spec returns the engine in the words of package engines.
func (e *Engine) Spec() engines.Spec {
	s := engines.Spec{
		Name: e.Name, URL: e.URL, Kind: engines.Kind(e.Kind), APIKey: e.APIKey.Reveal(), Weight: e.Weight, KVTokens: e.KVTokens,
		Models: e.Models, HealthPath: e.Health, MaxIdle: e.MaxIdle.Std(),
		InsecureSkipVerify: e.TLS.SkipVerify, CAFile: e.TLS.CA, ServerName: e.TLS.ServerName,
	}
	if len(e.Headers) > 0 {
		s.Headers = make(map[string]string, len(e.Headers))
		for name, value := range e.Headers {
			s.Headers[name] = value.Reveal()
		}
	}
	return s
}
