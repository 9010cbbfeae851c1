package config

import "time"

// Routing is where sessions are placed.
type Routing struct {
	// Candidates is how many engines of the ring a new session compares. Default 4. 1 is plain hashing; more spreads load better and shares prompts' beginnings less.
	Candidates int `toml:"candidates"`

	// Hysteresis is how many seconds of work a move must save before a bound session leaves its engine. Default 20s. Small values thrash when memory is tight; big ones leave sessions stuck
	// behind a busy engine.
	Hysteresis Duration `toml:"hysteresis"`

	// SessionIdle is how long a session without requests is remembered. Default 1h. Too small forgets people at lunch; too big fills MaxSessions with the dead.
	SessionIdle Duration `toml:"session_idle"`

	// MaxSessions is how many sessions are remembered; the longest idle goes first. Default 200000, about 100 MB.
	MaxSessions int `toml:"max_sessions"`

	// VirtualNodes is how many points of the ring one unit of weight gets. Default 160. All proxies of one fleet must have the same, or they disagree about homes. Fewer: uneven shares.
	VirtualNodes int `toml:"virtual_nodes"`

	// IndexTokens bounds what is believed about the caches of all engines together, in tokens. Default 0: the sum of the capacities that the engines report. About 100 bytes per 1,000 tokens.
	IndexTokens int64 `toml:"index_tokens"`
}

func defaultRouting() Routing {
	return Routing{
		Candidates: 4, Hysteresis: Duration(20 * time.Second), SessionIdle: Duration(time.Hour), MaxSessions: 200000, VirtualNodes: 160,
	}
}

// Identity is how requests are recognised as turns of one session.
type Identity struct {
	// Sources are the places where session ids are looked for, in order: "header:x-session-id", "body:prompt_cache_key", "claude", "codex" and so on. Default empty: the built-in list. A source
	// that several people share (a proxy's own header with one value) puts them all on one engine.
	Sources []string `toml:"sources" reload:"live"`

	// Secret keys the hash that separates tenants, and session ids in headers and logs. Default empty: a fixed key, so ids could be guessed by who can compute them. All proxies of one fleet
	// must have the same. "${NAME}" is replaced by that environment variable.
	Secret Secret `toml:"secret"`

	// StripBillingLine removes the billing line that Claude Code puts into the first system block, which changes on each request and makes engines miss their cache from the first token
	// (vLLM drops it itself on /v1/messages only, SGLang not at all). Default false: bodies pass byte for byte.
	StripBillingLine bool `toml:"strip_billing_line" reload:"live"`
}

// Headers are what the proxy itself adds to and takes from messages.
type Headers struct {
	// Response adds x-warmring-engine, -session, -reason and -warm to answers, and where lanes did something -held (seconds), -slices and -preempted (counts). Default true. Turn it off where clients must not learn engine names.
	Response bool `toml:"response"`

	// RequestID adds x-request-id to the request for the engine and to the answer, keeping the client's own when it has one. Default true.
	RequestID bool `toml:"request_id"`

	// TrustInternal lets clients send the headers that steer an engine from inside (InternalHeaders). Default false: they are removed, since anybody could pin a rank or jump the queue. Members of the body that say the same (priority, routed_dp_rank, rid, kv_transfer_params) pass either way, as all of it does: engines obey them only if started with priorities, ranks or a KV connector.
	TrustInternal bool `toml:"trust_internal"`
}

func defaultHeaders() Headers { return Headers{Response: true, RequestID: true} }

// Models are names that clients use and engines do not know.
type Models struct {
	// Alias maps a client's name to an engine's: "small" = "org/m-7b". The model field of the body is rewritten, nothing else; the answer carries the engine's name. Default none.
	Alias map[string]string `toml:"alias"`

	// Default serves every unknown name. Default "": unknown names are 404. Agents that send small side requests under other names need it on a fleet of one model.
	Default string `toml:"default"`
}

// Resolve returns the engine's name for a client's: an alias' target, the name itself where known says so, else the default, else the name itself.
func (m *Models) Resolve(name string, known func(string) bool) string {
	if target, ok := m.Alias[name]; ok {
		return target
	}
	if m.Default != "" && (known == nil || !known(name)) {
		return m.Default
	}
	return name
}
