package wire

import (
	"bytes"

	"github.com/warmring/warmring/ring/prompt"
)

// Route says what a request's path means to the proxy.
type Route struct {
	Family prompt.Family // the shape of errors, and of the body if Generation
	// Generation: the body holds a prompt and the answer is generated text, so the request is placed by its prefix.
	// Sub-paths (count_tokens, render, cancel…) belong to the family but generate nothing.
	Generation bool
	// Template is the path as a metric label: one of a fixed list, ids replaced (C211), "unmatched" for the rest (C210).
	Template string
}

// Unmatched is the template of every path that is not known. Such paths are forwarded like any other.
const Unmatched = "unmatched"

// FamilyOf returns the family that a path belongs to, sub-paths included: /v1/chat/completions, /v1/completions,
// /v1/messages, /v1/responses; also without /v1 and behind the two prefixes that base URLs in the field have,
// /openai and /anthropic. A query string and a trailing slash do not matter; other prefixes are not guessed at.
func FamilyOf(path []byte) prompt.Family { return RouteOf(nil, path).Family }

// RouteOf returns the route of a request. It does not allocate.
func RouteOf(method, path []byte) Route {
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if len(path) > 1 {
		path = bytes.TrimSuffix(path, []byte("/"))
	}
	short := path
	for _, prefix := range [...]string{"/openai", "/anthropic"} {
		if rest, ok := cutSegment(short, prefix); ok {
			short = rest
			break
		}
	}
	if rest, ok := cutSegment(short, "/v1"); ok {
		short = rest
	}
	post := string(method) == "POST"
	if rest, ok := cutSegment(short, "/chat/completions"); ok {
		return Route{prompt.Chat, post && len(rest) == 0, chatTemplate(rest)}
	}
	if rest, ok := cutSegment(short, "/completions"); ok {
		return Route{prompt.Completions, post && len(rest) == 0, completionsTemplate(rest)}
	}
	if rest, ok := cutSegment(short, "/messages"); ok {
		return Route{prompt.Messages, post && len(rest) == 0, messagesTemplate(rest)}
	}
	if rest, ok := cutSegment(short, "/responses"); ok {
		return Route{prompt.Responses, post && len(rest) == 0, responsesTemplate(rest)}
	}
	if rest, ok := cutSegment(short, "/models"); ok {
		if len(rest) == 0 {
			return Route{Template: "/v1/models"}
		}
		return Route{Template: "/v1/models/{id}"}
	}
	return Route{Template: otherTemplate(path)}
}

// cutSegment removes a prefix that ends where a path segment ends.
func cutSegment(path []byte, prefix string) ([]byte, bool) {
	if len(path) < len(prefix) || string(path[:len(prefix)]) != prefix {
		return path, false
	}
	rest := path[len(prefix):]
	return rest, len(rest) == 0 || rest[0] == '/'
}

func chatTemplate(rest []byte) string {
	switch string(rest) {
	case "":
		return "/v1/chat/completions"
	case "/render":
		return "/v1/chat/completions/render"
	case "/derender":
		return "/v1/chat/completions/derender"
	case "/batch":
		return "/v1/chat/completions/batch"
	}
	if oneSegment(rest) {
		return "/v1/chat/completions/{id}"
	}
	return Unmatched
}

func completionsTemplate(rest []byte) string {
	switch string(rest) {
	case "":
		return "/v1/completions"
	case "/render":
		return "/v1/completions/render"
	case "/derender":
		return "/v1/completions/derender"
	}
	return Unmatched
}

func messagesTemplate(rest []byte) string {
	switch string(rest) {
	case "":
		return "/v1/messages"
	case "/count_tokens":
		return "/v1/messages/count_tokens"
	case "/batches":
		return "/v1/messages/batches"
	}
	return Unmatched
}

func responsesTemplate(rest []byte) string {
	switch string(rest) {
	case "":
		return "/v1/responses"
	case "/compact":
		return "/v1/responses/compact"
	case "/input_tokens":
		return "/v1/responses/input_tokens"
	}
	if oneSegment(rest) {
		return "/v1/responses/{id}"
	}
	if id, ok := bytes.CutSuffix(rest, []byte("/cancel")); ok && oneSegment(id) {
		return "/v1/responses/{id}/cancel"
	}
	if id, ok := bytes.CutSuffix(rest, []byte("/input_items")); ok && oneSegment(id) {
		return "/v1/responses/{id}/input_items"
	}
	return Unmatched
}

// ResponseIDOf returns the id in /v1/responses/{id} and its sub-paths, nil if there is none: such a request belongs to
// the engine that made the response.
func ResponseIDOf(path []byte) []byte {
	r := RouteOf(nil, path)
	switch r.Template {
	case "/v1/responses/{id}", "/v1/responses/{id}/cancel", "/v1/responses/{id}/input_items":
		_, rest, _ := bytes.Cut(path, []byte("/responses/"))
		if i := bytes.IndexAny(rest, "/?"); i >= 0 {
			rest = rest[:i]
		}
		return rest
	}
	return nil
}

func oneSegment(rest []byte) bool {
	return len(rest) > 1 && bytes.IndexByte(rest[1:], '/') < 0
}

// otherTemplate lists the engines' further paths (vLLM, SGLang, llama.cpp), exactly as they write them.
func otherTemplate(path []byte) string {
	for _, known := range &otherPaths {
		if string(path) == known {
			return known
		}
	}
	return Unmatched
}

var otherPaths = [...]string{
	"/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/classify", "/v1/realtime", "/v1/tokenize", "/v1/detokenize",
	"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/loads", "/v2/embed", "/v2/rerank",
	"/generate", "/encode", "/rerank", "/score", "/classify", "/pooling", "/tokenize", "/detokenize", "/generative_scoring",
	"/inference/v1/generate", "/invocations", "/completion", "/embeddings", "/embedding", "/apply-template", "/infill",
	"/health", "/health_generate", "/ping", "/version", "/load", "/metrics", "/props", "/slots",
	"/model_info", "/get_model_info", "/server_info", "/get_server_info", "/tokenizer_info", "/abort_request", "/flush_cache",
	"/reset_prefix_cache", "/open_session", "/close_session",
}
