package identity

import (
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
	"github.com/warmring/warmring/ring/prompt/captured"
)

const scope = 7

func familyOf(target string) prompt.Family {
	switch {
	case strings.HasPrefix(target, "/v1/chat/completions"):
		return prompt.Chat
	case strings.HasPrefix(target, "/v1/messages"):
		return prompt.Messages
	case strings.HasPrefix(target, "/v1/responses"):
		return prompt.Responses
	}
	return prompt.None
}

func defaults(t testing.TB) *Rules {
	t.Helper()
	rules, err := Compile(DefaultSources())
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// identify reads all requests of a capture by the default rules.
func identify(t testing.TB, name string) []Identity {
	t.Helper()
	requests, err := captured.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	rules := defaults(t)
	var ids []Identity
	for i := range requests {
		q := &requests[i]
		var p prompt.Prompt
		p.Scan([]byte(q.Body), familyOf(q.Target))
		ids = append(ids, rules.Identify(q.Header, []byte(q.Body), &p, scope))
	}
	return ids
}

// Sessions are written as letters, one for each request: equal letters are the same session, '-' is none. Parents likewise:
// the letter of the parent's session, '-' when none is named, '?' when it is one that sends nothing in this capture.
func TestCapturedRequestsAreRecognisedAsTheirSessions(t *testing.T) {
	for _, c := range []struct{ name, sessions, parents, source string }{
		{"codex", "AAAAAA", "------", "codex"},
		{"codex+compaction", "AAAAA", "-----", "codex"},
		{"codex+fork", "AAA", "???", "codex"},
		{"codex+review", "AAA", "???", "codex"},
		{"codex+subagent", "AAABACBCBCAAA", "---A-AAAAA---", "codex"},
		{"opencode", "AAAAAA", "------", "header:x-session-id"},
		{"opencode+title", "A", "-", "header:x-session-id"},
		{"opencode+fork", "AAA", "---", "header:x-session-id"},
		{"opencode+responses", "AAA", "---", "header:x-session-id"},
		{"opencode+anthropic", "AAA", "---", "header:x-session-id"},
		{"opencode+subagent", "ABBBAA", "-AAA--", ""},
		{"kilo", "AAAAAA", "------", "header:x-session-id"},
		{"kilo+title", "A", "-", "header:x-session-id"},
		{"kilo+fork", "AAA", "---", "header:x-session-id"},
		{"kilo+subagent", "ABBBAA", "-AAA--", ""},
		{"pi", "---------", "---------", ""},
		{"pi+anthropic", "---------", "---------", ""},
		{"pi+affinity-header", "AAA", "---", "header:x-session-affinity"},
		{"pi+responses", "AAAAAABBB", "---------", "header:session_id"},
		{"qwen-code", "------", "------", ""},
		{"qwen-code+session-header", "AAAAAA", "------", "header:x-session-id"},
		{"qwen-code+subagent", "---------", "---------", ""},
		{"qwen-code+fork-agent-0.15.10", "-----", "-----", ""},
		{"aiperf", "AAA", "---", "header:x-session-affinity"},
		{"aiperf+dag", "AABBACDC", "--AA-AAA", "dynamo"},
		{"aider", "---", "---", ""},
		{"cline", "---", "---", ""},
		{"cline+subagent", "------", "------", ""},
		{"deepagents", "------------", "------------", ""},
		{"deepagents+responses", "------------", "------------", ""},
		{"guidellm", "---", "---", ""},
		{"mini-swe-agent", "---", "---", ""},
		{"openai-agents", "--------------", "--------------", ""},
		{"openai-agents+responses", "--------------", "--------------", ""},
		{"openai-node", "----", "----", ""},
		{"openai-python", "----", "----", ""},
		{"pydantic-ai", "---------", "---------", ""},
		{"pydantic-ai+anthropic", "---------", "---------", ""},
		{"smolagents", "----------", "----------", ""},
	} {
		ids := identify(t, c.name)
		letters := map[uint64]byte{0: '-'}
		for _, id := range ids {
			if _, ok := letters[id.Session]; !ok {
				letters[id.Session] = byte('A' + len(letters) - 1)
			}
		}
		sessions, parents := "", ""
		for _, id := range ids {
			sessions += string(letters[id.Session])
			if l, ok := letters[id.Parent]; ok {
				parents += string(l)
			} else {
				parents += "?"
			}
			if c.source != "" && id.Source != c.source {
				t.Errorf("%s: source %q, want %q", c.name, id.Source, c.source)
			}
		}
		if sessions != c.sessions || parents != c.parents {
			t.Errorf("%s:\nsessions %s, want %s\nparents  %s, want %s", c.name, sessions, c.sessions, parents, c.parents)
		}
	}
	// The table names every capture.
	if n := len(captured.Names()); n != 39 {
		t.Errorf("%d captures", n)
	}
}

func TestACodexForkNamesItsOrigin(t *testing.T) {
	if origin, fork := identify(t, "codex")[0], identify(t, "codex+fork")[0]; fork.Parent != origin.Session || origin.Session == 0 {
		t.Errorf("parent %x, origin %x", fork.Parent, origin.Session)
	}
}

func TestAnOpencodeTitleRequestIsOfItsSession(t *testing.T) {
	if session, title := identify(t, "opencode")[0], identify(t, "opencode+title")[0]; session.Session != title.Session {
		t.Errorf("title %x, session %x", title.Session, session.Session)
	}
}
