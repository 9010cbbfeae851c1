package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warmring/warmring/ring/prompt"
)

// kind is how a rule reads a request.
type kind uint8

const (
	kindHeader kind = iota
	kindBody
	kindUser
	kindClaude
	kindCodex
	kindOpencode
)

// rule is one compiled source.
type rule struct {
	kind   kind
	source string // as configured
	name   string // header or body field
	parent string // header of the parent's id; "" = none
}

// pair tells whether the rule can know a parent.
func (r *rule) pair() bool { return r.parent != "" || r.kind >= kindClaude }

// DefaultSources returns the names of all sources that are used by default, in order. What names a session for sure comes
// before what may be shared by several (a routing key, a cache key); headers come before body members.
func DefaultSources() []string {
	return []string{
		"header:x-warmring-session",
		"claude",
		"codex",
		"opencode",
		"dynamo",
		"header:x-session-id",
		"header:x-session-affinity",
		"header:session_id",
		"header:x-kilocode-taskid",
		"header:x-roo-task-id",
		"header:x-task-id",
		"header:x-qwen-code-session-id",
		"header:x-litellm-session-id",
		"header:x-grok-conv-id",
		"header:x-smg-routing-key",
		"body:prompt_cache_key",
		"body:conversation",
		"body:previous_response_id",
		"body:metadata.user_id",
		"body:session_id",
		"body:litellm_session_id",
		"body:session_params.session_id",
		"body:extra_body.session_id",
		"body:metadata.session_id",
		"body:program_id",
		"body:extra_body.program_id",
	}
}

// parentHeader returns the header that names the parent of the session that the given header names, "" when none is known.
func parentHeader(name string) string {
	switch name {
	case "x-warmring-session":
		return "x-warmring-parent"
	case "x-session-id", "x-session-affinity", "x-opencode-session":
		return "x-parent-session-id"
	case "x-dynamo-session-id":
		return "x-dynamo-parent-session-id"
	case "x-kilocode-taskid":
		return "x-kilocode-parent-taskid"
	}
	return ""
}

// neverSession says why a header cannot name a session, "" when it can.
func neverSession(name string) string {
	switch name {
	case "authorization", "proxy-authorization", "x-api-key", "api-key":
		return "a credential is shared by all sessions of its owner"
	case "cookie", "set-cookie":
		return "a cookie is shared by all sessions of its owner"
	case "x-request-id", "x-client-request-id", "request-id", "idempotency-key", "traceparent", "tracestate", "baggage":
		return "it names a request or a trace, not a session"
	case "host", "user-agent", "content-type", "content-length", "x-forwarded-for", "x-real-ip", "forwarded":
		return "it does not name a session"
	}
	return ""
}

// Compile reads a list of sources, in the order in which they are tried:
//
//	claude, codex, opencode, dynamo    the headers of that client, its parents and forks included
//	header:NAME                        a header; its usual parent header is known for some
//	header:NAME/PARENT                 a header and the one that names the parent
//	body:FIELD                         a member of the body, one of prompt.FieldNames
//
// An empty list is allowed: then no session has an id. An error names the entry and what was probably meant.
func Compile(sources []string) (*Rules, error) {
	r := new(Rules)
	seen := make(map[string]bool, len(sources))
	for _, source := range sources {
		rule, err := compile(source)
		if err != nil {
			return nil, err
		}
		if seen[source] {
			return nil, fmt.Errorf("identity source %q is listed twice", source)
		}
		seen[source] = true
		if rule.kind == kindBody && rule.name == "previous_response_id" {
			r.previous = true
			continue
		}
		r.rules = append(r.rules, rule)
	}
	return r, nil
}

func compile(source string) (rule, error) {
	switch source {
	case "claude":
		return rule{kind: kindClaude, source: source}, nil
	case "codex":
		return rule{kind: kindCodex, source: source}, nil
	case "opencode":
		return rule{kind: kindOpencode, source: source}, nil
	case "dynamo":
		return rule{kind: kindHeader, source: source, name: "x-dynamo-session-id", parent: "x-dynamo-parent-session-id"}, nil
	}
	if spec, ok := strings.CutPrefix(source, "header:"); ok {
		name, parent, pair := strings.Cut(strings.ToLower(spec), "/")
		if !token(name) || (pair && !token(parent)) {
			return rule{}, fmt.Errorf("identity source %q does not hold a header name; write header:NAME or header:NAME/PARENT-NAME", source)
		}
		if why := neverSession(name); why != "" {
			return rule{}, fmt.Errorf("identity source %q cannot be used: %s", source, why)
		}
		if !pair {
			parent = parentHeader(name)
		}
		return rule{kind: kindHeader, source: source, name: name, parent: parent}, nil
	}
	if name, ok := strings.CutPrefix(source, "body:"); ok && slices.Contains(prompt.FieldNames(), name) {
		k := kindBody
		if name == "metadata.user_id" {
			k = kindUser
		}
		return rule{kind: k, source: source, name: name}, nil
	}
	return rule{}, fmt.Errorf("unknown identity source %q; did you mean %q?", source, nearest(source))
}

// token tells whether s can be a header's name.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// nearest returns the source that is written most like s.
func nearest(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	known := DefaultSources()
	for _, name := range prompt.FieldNames() {
		if source := "body:" + name; !slices.Contains(known, source) {
			known = append(known, source)
		}
	}
	best, least := "", 1<<30
	for _, k := range known {
		d := distance(s, k)
		if _, bare, ok := strings.Cut(k, ":"); ok { // the prefix is what is forgotten most easily
			d = min(d, distance(s, bare))
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of single-character edits between two strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
