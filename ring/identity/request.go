package identity

import (
	"bytes"

	"github.com/warmring/warmring/ring/prompt"
)

// request is what the rules read. It stays on the stack: rules are kinds and names, not functions.
type request struct {
	header func(name string) []byte
	body   []byte
	p      *prompt.Prompt
	scope  uint64
}

func (q *request) field(name string) []byte {
	if q.p == nil {
		return nil
	}
	return q.p.Field(q.body, name)
}

func (q *request) key(id []byte) uint64 { return Key(q.scope, id) }

// read applies one rule.
func (q *request) read(r *rule) (session, parent uint64) {
	switch r.kind {
	case kindHeader:
		if r.parent != "" {
			parent = q.key(q.header(r.parent))
		}
		return q.key(q.header(r.name)), parent
	case kindBody:
		return q.key(q.field(r.name)), 0
	case kindUser:
		return q.key(userSession(q.field(r.name))), 0
	case kindClaude:
		return q.claude()
	case kindCodex:
		return q.codex()
	case kindOpencode:
		return q.opencode()
	}
	return 0, 0
}

// claude reads Claude Code: each of its agents is a session of its own; the parent is the agent that spawned it, or the
// main conversation. An agent's id counts within its session only.
func (q *request) claude() (session, parent uint64) {
	main := q.header("x-claude-code-session-id")
	agent := clean(q.header("x-claude-code-agent-id"))
	if clean(main) == nil && agent != nil {
		main = userSession(q.field("metadata.user_id"))
	}
	if agent == nil {
		return q.key(main), 0
	}
	if clean(main) == nil {
		return q.key(agent), q.key(q.header("x-claude-code-parent-agent-id"))
	}
	session = key(q.scope, main, agent)
	if spawner := clean(q.header("x-claude-code-parent-agent-id")); spawner != nil {
		return session, key(q.scope, main, spawner)
	}
	return session, q.key(main)
}

// codex reads OpenAI Codex. Its session id is shared by a thread and all that it spawns, so the thread id wins. A fork
// names its origin in the turn metadata only. A thread that differs from its session and names no parent is the
// session's child: the root's thread id is the session id.
func (q *request) codex() (session, parent uint64) {
	metadata := q.header("x-codex-turn-metadata")
	if len(metadata) == 0 {
		metadata = q.field("client_metadata.x-codex-turn-metadata")
	}
	thread := q.key(q.header("thread-id"))
	if thread == 0 {
		thread = q.key(q.field("client_metadata.thread_id"))
	}
	if thread == 0 {
		thread = q.key(member(metadata, "thread_id"))
	}
	root := q.key(q.header("session-id"))
	if root == 0 && (thread != 0 || len(metadata) > 0) { // others send session_id too
		root = q.key(q.header("session_id"))
	}
	if root == 0 {
		root = q.key(q.field("client_metadata.session_id"))
	}
	parent = q.key(q.header("x-codex-parent-thread-id"))
	if parent == 0 {
		parent = q.key(q.field("client_metadata.x-codex-parent-thread-id"))
	}
	if parent == 0 {
		parent = q.key(member(metadata, "parent_thread_id"))
	}
	if parent == 0 {
		parent = q.key(member(metadata, "forked_from_thread_id"))
	}
	if thread == 0 {
		return root, parent
	}
	if parent == 0 && root != thread {
		parent = root
	}
	return thread, parent
}

// opencode reads opencode and Kilo, told from others by headers that only they send: the relay's own session header, or
// the parent of a sub-agent. Their other requests are read by the plain x-session-id and x-session-affinity.
func (q *request) opencode() (session, parent uint64) {
	session = q.key(q.header("x-opencode-session"))
	parent = q.key(q.header("x-parent-session-id"))
	if session == 0 && parent != 0 {
		if session = q.key(q.header("x-session-id")); session == 0 {
			session = q.key(q.header("x-session-affinity"))
		}
	}
	return session, parent
}

// userSession returns the session part of Claude Code's metadata.user_id, nil when the value is a plain user's id: the
// older form is user_…_account_…_session_<id>, the newer one a JSON object with a session_id, written as a string.
func userSession(user []byte) []byte {
	if id := member(user, "session_id"); id != nil {
		return id
	}
	const mark = "_session_"
	if !bytes.HasPrefix(user, []byte("user_")) {
		return nil
	}
	if at := bytes.LastIndex(user, []byte(mark)); at >= 0 {
		return user[at+len(mark):]
	}
	return nil
}

// member returns the string value of an object's member, found by its name and not by parsing: ids hold neither quotes
// nor backslashes, so the object may be JSON or JSON inside a JSON string. It returns nil when there is none.
func member(object []byte, name string) []byte {
	for at := 0; ; at++ {
		n := bytes.Index(object[at:], []byte(name))
		if n < 0 {
			return nil
		}
		at += n
		if at == 0 || object[at-1] != '"' {
			continue
		}
		value, ok := afterToken(object[at+len(name):], '"')
		if ok {
			value, ok = afterToken(value, ':')
		}
		if ok {
			value, ok = afterToken(value, '"')
		}
		if !ok {
			continue
		}
		if end := bytes.IndexAny(value, "\"\\"); end > 0 {
			return value[:end]
		}
		return nil
	}
}

// afterToken returns what follows the token c, which blanks and one backslash may precede.
func afterToken(b []byte, c byte) ([]byte, bool) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\\') {
		i++
	}
	if i < len(b) && b[i] == c {
		return b[i+1:], true
	}
	return nil, false
}
