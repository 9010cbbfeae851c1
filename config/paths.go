package config

import (
	"bytes"
	"strings"
)

// Paths are the engine paths that clients may use beyond the harmless ones.
type Paths struct {
	// Allow lists admin paths (AdminPaths) that pass after all, as written there or as one member of a "*" entry: ["/metrics"]. "*" allows all. Default none: the engines' own key does not
	// guard these paths, and a client that reaches one can wipe every cache or end other people's requests.
	Allow []string `toml:"allow"`
}

// AdminPath is a path that an engine offers to its operator.
type AdminPath struct {
	Path   string // without version segment; a trailing * stands for any rest
	Reason string // what a client could do with it
}

// AdminPaths is the one list of refused paths, with what each can do. They are matched with and without a version segment, however the path is spelled. A function, so that nobody can change it.
func AdminPaths() []AdminPath {
	const (
		cache    = "drops caches: every session is cold again"
		control  = "stops or starts the engine for everybody"
		others   = "ends other people's requests: ids match by prefix"
		weights  = "replaces what the model is"
		adapters = "loads or unloads adapters from paths on the engine's disk"
		profile  = "slows the engine and fills its disk"
		inside   = "shows start-up arguments, keys or load of the engine"
		prompts  = "shows or changes what others' slots hold"
	)
	return []AdminPath{
		{"/reset_prefix_cache", cache}, {"/reset_mm_cache", cache}, {"/reset_encoder_cache", cache}, {"/flush_cache", cache}, {"/clear_hicache_storage_backend", cache}, {"/hicache/*", cache},
		{"/sleep", control}, {"/wake_up", control}, {"/is_sleeping", inside}, {"/pause", control}, {"/resume", control}, {"/is_paused", inside}, {"/pause_generation", control},
		{"/continue_generation", control}, {"/scale_elastic_ep", control}, {"/is_scaling_elastic_ep", inside}, {"/fault_tolerance/*", control}, {"/collective_rpc", control},
		{"/set_internal_state", control}, {"/slow_down", control}, {"/configure_logging", control}, {"/freeze_gc", control}, {"/release_memory_occupation", control},
		{"/resume_memory_occupation", control},
		{"/abort_request", others}, {"/abort_requests", others}, {"/inference/v1/abort_requests", others},
		{"/update_weight*", weights}, {"/init_weight*", weights}, {"/destroy_weight*", weights}, {"/get_weights_by_name", weights}, {"/finish_weight*", weights}, {"/start_weight*", weights},
		{"/models/load", weights}, {"/models/unload", weights},
		{"/load_lora_adapter*", adapters}, {"/unload_lora_adapter*", adapters}, {"/lora-adapters", adapters},
		{"/start_profile", profile}, {"/stop_profile", profile}, {"/start_expert_distribution_record", profile}, {"/stop_expert_distribution_record", profile},
		{"/dump_expert_distribution_record", profile},
		{"/metrics", inside}, {"/prometheus/metrics", inside}, {"/server_info", inside}, {"/get_server_info", inside}, {"/get_internal_state", inside}, {"/load", inside}, {"/loads", inside},
		{"/get_load", inside}, {"/kv_cache_events", inside}, {"/props", inside}, {"/slots*", prompts},
	}
}

// InternalHeaders are request headers that steer an engine from inside: rank, priority, overrides. Lower case. They are removed unless headers.trust_internal is set.
func InternalHeaders() []string {
	return []string{
		"x-data-parallel-rank", "x-vllm-priority", "x-override-rid", "x-override-priority", "x-override-routed-dp-rank", "x-override-conversation-id", "x-override-bootstrap-host",
		"x-override-bootstrap-port", "x-override-bootstrap-room",
	}
}

// Gate answers whether a path may pass. Make it once with Paths.Gate; safe for concurrent use.
type Gate struct {
	exact  map[string]string
	prefix []AdminPath // without their *
	open   bool
}

// Gate compiles the list of refused paths, less the allowed ones.
func (p *Paths) Gate() *Gate {
	g := &Gate{exact: map[string]string{}}
	allowed := map[string]bool{}
	for _, path := range p.Allow {
		if path == "*" {
			g.open = true
		}
		allowed[plainPath([]byte(path))] = true
	}
	for path := range allowed {
		g.exact[path] = "" // an allowed member of a "*" entry
	}
	for _, admin := range AdminPaths() {
		if rest, ok := strings.CutSuffix(admin.Path, "*"); ok {
			if !allowed[admin.Path] {
				g.prefix = append(g.prefix, AdminPath{rest, admin.Reason})
			}
		} else if !allowed[admin.Path] {
			g.exact[admin.Path] = admin.Reason
		}
	}
	return g
}

// Refused tells whether a request path (query and all, as the client wrote it) is an engine's admin path, and what it could do. It reads the path as an engine would: percent signs, doubled
// slashes and dots are resolved first. The usual paths cost one comparison.
func (g *Gate) Refused(path []byte) (reason string, refused bool) {
	if g.open || ordinary(path) {
		return "", false
	}
	plain := plainPath(path)
	if reason, known := g.exact[plain]; known {
		return reason, reason != ""
	}
	for _, p := range g.prefix {
		if strings.HasPrefix(plain, p.Path) {
			return p.Reason, true
		}
	}
	return "", false
}

// ordinary are the paths nearly all requests have, written plainly.
func ordinary(path []byte) bool {
	switch string(path) {
	case "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/v1/messages/count_tokens", "/v1/embeddings":
		return true
	}
	return false
}

// plainPath is the path an engine's router would see: no query, percent signs decoded (twice, for a gateway in between), no empty or dot segments, no leading version segments, lower case.
func plainPath(path []byte) string {
	if i := bytes.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if i := bytes.Index(path, []byte("://")); i >= 0 && bytes.IndexByte(path[:i], '/') < 0 { // absolute form: scheme and host are not the path
		path = path[i+3:]
		path = path[max(bytes.IndexByte(path, '/'), 0):]
	}
	for range 2 {
		path = unescape(path)
	}
	var kept []string
	for segment := range strings.SplitSeq(strings.ToLower(strings.ReplaceAll(string(path), "\\", "/")), "/") {
		segment = strings.TrimSpace(segment)
		switch segment {
		case "", ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, segment)
		}
	}
	for len(kept) > 1 && isVersion(kept[0]) {
		kept = kept[1:]
	}
	return "/" + strings.Join(kept, "/")
}

func isVersion(segment string) bool {
	return len(segment) >= 2 && segment[0] == 'v' && strings.Trim(segment[1:], "0123456789") == ""
}

func unescape(path []byte) []byte {
	if bytes.IndexByte(path, '%') < 0 {
		return path
	}
	out := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			high, low := hex(path[i+1]), hex(path[i+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, path[i])
	}
	return out
}

func hex(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return int(b|0x20-'a') + 10
	}
	return -1
}
