package identity

import (
	"bytes"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// headers are a request's headers by lower-case name.
type headers map[string]string

func (h headers) get(name string) []byte { return []byte(h[name]) }

// ask identifies a request by the default sources.
func ask(t testing.TB, h headers, body string) Identity {
	t.Helper()
	var p prompt.Prompt
	p.Scan([]byte(body), prompt.Chat)
	return defaults(t).Identify(h.get, []byte(body), &p, scope)
}

func id(s string) uint64 { return Key(scope, []byte(s)) }

func TestEachClientIsRecognisedByWhatItSends(t *testing.T) {
	legacy := `{"metadata":{"user_id":"user_` + strings.Repeat("ab", 32) + `_account_x-y_session_S1"}}`
	modern := `{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"S1\"}"}}`
	for _, c := range []struct {
		name            string
		headers         headers
		body            string
		session, parent uint64
		source          string
	}{
		{"nothing", headers{}, `{}`, 0, 0, ""},
		{"warmring's own header wins", headers{"x-warmring-session": "S1", "x-warmring-parent": "P1", "x-session-id": "S2"}, `{"prompt_cache_key":"S3"}`, id("S1"), id("P1"), "header:x-warmring-session"},
		{"warmring's own parent of a session that another header names", headers{"x-warmring-parent": "P1", "x-session-id": "S1"}, `{}`, id("S1"), id("P1"), "header:x-session-id"},
		{"warmring's own parent of a session without an id", headers{"x-warmring-parent": "P1"}, `{}`, 0, id("P1"), ""},
		{"Claude Code", headers{"x-claude-code-session-id": "S1"}, modern, id("S1"), 0, "claude"},
		{"Claude Code before it had a header", headers{}, modern, id("S1"), 0, "body:metadata.user_id"},
		{"Claude Code long before", headers{}, legacy, id("S1"), 0, "body:metadata.user_id"},
		{"an Anthropic client's plain user id", headers{}, `{"metadata":{"user_id":"user-7"}}`, 0, 0, ""},
		{"Claude Code's child", headers{"x-claude-code-session-id": "S1", "x-claude-code-agent-id": "A1"}, `{}`, key(scope, []byte("S1"), []byte("A1")), id("S1"), "claude"},
		{"Claude Code's child, session in the body", headers{"x-claude-code-agent-id": "A1"}, modern, key(scope, []byte("S1"), []byte("A1")), id("S1"), "claude"},
		{"Claude Code's grandchild", headers{"x-claude-code-session-id": "S1", "x-claude-code-agent-id": "A2", "x-claude-code-parent-agent-id": "A1"}, `{}`, key(scope, []byte("S1"), []byte("A2")), key(scope, []byte("S1"), []byte("A1")), "claude"},
		{"Codex", headers{"session-id": "S1", "thread-id": "S1", "x-client-request-id": "S1"}, `{"prompt_cache_key":"S1"}`, id("S1"), 0, "codex"},
		{"Codex's child shares session and cache key", headers{"session-id": "S1", "thread-id": "T1", "x-codex-parent-thread-id": "S1"}, `{"prompt_cache_key":"S1"}`, id("T1"), id("S1"), "codex"},
		{"Codex's child that names no parent", headers{"session-id": "S1", "thread-id": "T1"}, `{}`, id("T1"), id("S1"), "codex"},
		{"Codex's fork", headers{"session-id": "S2", "thread-id": "S2", "x-codex-turn-metadata": `{"thread_id":"S2","forked_from_thread_id": "S1"}`}, `{}`, id("S2"), id("S1"), "codex"},
		{"Codex's grandchild", headers{"session-id": "S1", "thread-id": "T2", "x-codex-turn-metadata": `{"parent_thread_id":"T1"}`}, `{}`, id("T2"), id("T1"), "codex"},
		{"Codex without its headers", headers{}, `{"client_metadata":{"session_id":"S1","thread_id":"T1","x-codex-turn-metadata":"{\"parent_thread_id\":\"S1\"}"},"prompt_cache_key":"S1"}`, id("T1"), id("S1"), "codex"},
		{"old Codex", headers{"session_id": "S1"}, `{"prompt_cache_key":"S1"}`, id("S1"), 0, "header:session_id"},
		{"opencode's relay", headers{"x-opencode-session": "S1"}, `{}`, id("S1"), 0, "opencode"},
		{"opencode's child", headers{"x-session-affinity": "S1", "x-session-id": "S1", "x-parent-session-id": "P1"}, `{}`, id("S1"), id("P1"), "opencode"},
		{"Kilo's task", headers{"x-kilocode-taskid": "S1", "x-kilocode-parent-taskid": "P1"}, `{}`, id("S1"), id("P1"), "header:x-kilocode-taskid"},
		{"Dynamo's pair", headers{"x-dynamo-session-id": "S1", "x-dynamo-parent-session-id": "P1"}, `{}`, id("S1"), id("P1"), "dynamo"},
		{"Cline's task", headers{"x-task-id": "S1"}, `{}`, id("S1"), 0, "header:x-task-id"},
		{"Roo Code's task", headers{"x-roo-task-id": "S1"}, `{}`, id("S1"), 0, "header:x-roo-task-id"},
		{"Qwen Code", headers{"x-qwen-code-session-id": "S1"}, `{}`, id("S1"), 0, "header:x-qwen-code-session-id"},
		{"LiteLLM", headers{"x-litellm-session-id": "S1"}, `{}`, id("S1"), 0, "header:x-litellm-session-id"},
		{"xAI", headers{"x-grok-conv-id": "S1"}, `{}`, id("S1"), 0, "header:x-grok-conv-id"},
		{"SMG", headers{"x-smg-routing-key": "S1"}, `{}`, id("S1"), 0, "header:x-smg-routing-key"},
		{"pi", headers{"session_id": "S1", "x-client-request-id": "S1"}, `{}`, id("S1"), 0, "header:session_id"},
		{"a cache key", headers{}, `{"prompt_cache_key":"S1","session_id":"S2"}`, id("S1"), 0, "body:prompt_cache_key"},
		{"a conversation", headers{}, `{"conversation":{"id":"S1"}}`, id("S1"), 0, "body:conversation"},
		{"OpenRouter", headers{}, `{"session_id":"S1"}`, id("S1"), 0, "body:session_id"},
		{"production stack", headers{}, `{"session_params":{"session_id":"S1"}}`, id("S1"), 0, "body:session_params.session_id"},
		{"ThunderAgent", headers{}, `{"extra_body":{"program_id":"S1"}}`, id("S1"), 0, "body:extra_body.program_id"},
		{"a session that is its own parent", headers{"x-warmring-session": "S1", "x-warmring-parent": "S1"}, `{}`, id("S1"), 0, "header:x-warmring-session"},
		{"requests, traces, credentials, cookies", headers{"x-request-id": "1", "x-client-request-id": "2", "traceparent": "3", "authorization": "Bearer 4", "cookie": "5", "x-correlation-id": "6"}, `{}`, 0, 0, ""},
		{"blank ids", headers{"x-warmring-session": "", "x-session-id": " \t", "session_id": "undefined", "x-task-id": "null"}, `{"prompt_cache_key":"","session_id":"S1"}`, id("S1"), 0, "body:session_id"},
	} {
		got := ask(t, c.headers, c.body)
		if got.Session != c.session || got.Parent != c.parent || got.Source != c.source {
			t.Errorf("%s: %+v, want session %x, parent %x by %q", c.name, got, c.session, c.parent, c.source)
		}
	}
}

func TestAnAnswerThatIsContinuedIsReportedBesideTheSession(t *testing.T) {
	got := ask(t, headers{"x-session-id": "S1"}, `{"previous_response_id":"resp_1"}`)
	if got.Session != id("S1") || got.PreviousResponse != id("resp_1") {
		t.Errorf("%+v", got)
	}
	if got := ask(t, headers{}, `{"previous_response_id":"resp_1"}`); got.Session != 0 || got.PreviousResponse != id("resp_1") {
		t.Errorf("%+v", got)
	}
	rules, err := Compile([]string{"header:x-session-id"})
	if err != nil {
		t.Fatal(err)
	}
	var p prompt.Prompt
	body := []byte(`{"previous_response_id":"resp_1"}`)
	p.Scan(body, prompt.Responses)
	if got := rules.Identify(headers{}.get, body, &p, scope); got.PreviousResponse != 0 {
		t.Error("reported though it is no source")
	}
}

func TestKeysAreOfTheScopeAndTheWholeID(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 5000)
	longer := append(bytes.Clone(long), 'y')
	if Key(1, long) == Key(1, longer) {
		t.Error("long ids are cut")
	}
	if Key(1, []byte("a")) == Key(2, []byte("a")) {
		t.Error("scopes meet")
	}
	if Key(1, []byte(" a ")) != Key(1, []byte("a")) {
		t.Error("blanks around an id count")
	}
	if key(1, []byte("a"), []byte("b")) == key(1, []byte("ab"), nil) || key(1, []byte("a"), []byte("b")) == Key(1, []byte("a")) {
		t.Error("an agent's key is another id's")
	}
}

func TestABadSourceIsNamedWithTheNearestGoodOne(t *testing.T) {
	for bad, want := range map[string]string{
		"x-session-id":               `"header:x-session-id"`,
		"x-warmring-sesion":          `"header:x-warmring-session"`,
		"body:prompt_cachekey":       `"body:prompt_cache_key"`,
		"body:metadata.userid":       `"body:metadata.user_id"`,
		"claud":                      `"claude"`,
		"Codex":                      `"codex"`,
		"":                           `unknown`,
		"header:":                    "header:NAME",
		"header:a b":                 "header:NAME",
		"header:x/":                  "header:NAME",
		"header:Authorization":       "credential",
		"header:traceparent":         "names a request",
		"header:x-request-id":        "names a request",
		"header:cookie":              "cookie",
		"prompt_cache_key":           `"body:prompt_cache_key"`,
		"body:conversation.id":       `"body:conversation"`,
		"header:x-forwarded-for":     "does not name a session",
		"header:x-client-request-id": "names a request",
	} {
		_, err := Compile([]string{"claude", bad})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want something with %s", bad, err, want)
		}
	}
	if _, err := Compile([]string{"claude", "claude"}); err == nil {
		t.Error("a source twice")
	}
	for _, good := range [][]string{nil, {"header:X-My-Chat"}, {"header:x-chat/x-parent-chat", "dynamo"}, {"header:x-correlation-id"}, {"body:client_metadata.thread_id"}} {
		if _, err := Compile(good); err != nil {
			t.Error(err)
		}
	}
}

func TestAnOwnHeaderMayNameItsParentHeader(t *testing.T) {
	rules, err := Compile([]string{"header:X-Chat/X-Chat-Parent"})
	if err != nil {
		t.Fatal(err)
	}
	got := rules.Identify(headers{"x-chat": "a", "x-chat-parent": "b"}.get, nil, nil, scope)
	if got.Session != id("a") || got.Parent != id("b") {
		t.Errorf("%+v", got)
	}
}

func TestATenantIsItsKeyWhereverItIsWritten(t *testing.T) {
	tenant := func(authorization, apiKey string) uint64 {
		return Tenant("secret", []byte(authorization), []byte(apiKey))
	}
	same := []uint64{tenant("Bearer sk-1", ""), tenant("bearer  sk-1 ", "other"), tenant("", "sk-1"), tenant("Bearer ", "sk-1"), tenant("Bearer", "sk-1")}
	for i, v := range same {
		if v != same[0] || v == 0 {
			t.Errorf("spelling %d: %x, want %x", i, v, same[0])
		}
	}
	if tenant("", "") != 0 || tenant(" ", " ") != 0 {
		t.Error("no key is a tenant")
	}
	if tenant("Bearer sk-1", "") == tenant("Bearer sk-2", "") || tenant("Bearer sk-1", "") == Tenant("other", []byte("Bearer sk-1"), nil) {
		t.Error("tenants meet")
	}
}

func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"a":"session_id","session_id" : "x"}`), "session")
	f.Add([]byte(`{\"session_id\":\"x\"}`), "session")
	f.Add([]byte(`session_id"session_id`), "session")
	f.Fuzz(func(t *testing.T, object []byte, name string) {
		if v := member(object, name+"_id"); v != nil && (len(v) == 0 || bytes.ContainsAny(v, `"\`)) {
			t.Fatalf("%q", v)
		}
	})
}

func BenchmarkIdentify(b *testing.B) {
	rules := defaults(b)
	for name, h := range map[string]headers{"by a late header": {"x-session-affinity": "S1"}, "without an id": {}} {
		b.Run(name, func(b *testing.B) {
			body := []byte(`{"model":"m"}`)
			var p prompt.Prompt
			p.Scan(body, prompt.Chat)
			values := map[string][]byte{}
			for k, v := range h {
				values[k] = []byte(v)
			}
			get := func(name string) []byte { return values[name] }
			b.ReportAllocs()
			for b.Loop() {
				rules.Identify(get, body, &p, Tenant("secret", []byte("Bearer sk-1"), nil))
			}
		})
	}
}

func TestIdentifyingDoesNotAllocate(t *testing.T) {
	rules := defaults(t)
	body := []byte(`{"metadata":{"user_id":"{\"session_id\":\"S1\"}"},"previous_response_id":"r"}`)
	var p prompt.Prompt
	p.Scan(body, prompt.Messages)
	agent, metadata := []byte("A1"), []byte(`{"parent_thread_id":"T1"}`)
	get := func(name string) []byte {
		switch name {
		case "x-claude-code-agent-id", "authorization":
			return agent
		case "x-codex-turn-metadata":
			return metadata
		}
		return nil
	}
	if n := testing.AllocsPerRun(100, func() {
		rules.Identify(get, body, &p, Tenant("secret", get("authorization"), nil))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
