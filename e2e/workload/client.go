package workload

import (
	"net/http"

	"github.com/warmring/warmring/ring/prompt"
)

// Client is a kind of agent: which API it speaks and how it names its sessions.
type Client struct {
	Name   string
	Family prompt.Family
	Named  Naming
	Usage  bool // asks for usage at the end of a stream (chat and completions)
}

// Naming is where a client writes its session's id.
type Naming uint8

// The ways of naming, as clients in the field do it.
const (
	Nameless    Naming = iota // nowhere
	SessionID                 // headers x-session-id and x-parent-session-id
	CacheKey                  // prompt_cache_key in the body; the parent is not named
	ClaudeStyle               // x-claude-code-session-id and, for sub-agents, x-claude-code-agent-id; a branch names nothing
	CodexStyle                // thread-id, session-id, x-codex-parent-thread-id; a branch in x-codex-turn-metadata
)

// Clients is a mix in which a quarter of the sessions has no id at all.
func Clients() []Client {
	return []Client{
		{Name: "header", Family: prompt.Chat, Named: SessionID, Usage: true},
		{Name: "nameless", Family: prompt.Chat, Named: Nameless},
		{Name: "cachekey", Family: prompt.Chat, Named: CacheKey, Usage: true},
		{Name: "claude", Family: prompt.Messages, Named: ClaudeStyle},
		{Name: "header", Family: prompt.Chat, Named: SessionID, Usage: true},
		{Name: "nameless", Family: prompt.Chat, Named: Nameless},
		{Name: "codex", Family: prompt.Responses, Named: CodexStyle},
		{Name: "cachekey", Family: prompt.Chat, Named: CacheKey, Usage: true},
	}
}

// path is where the client's family is served.
func (c *Client) path() string {
	switch c.Family {
	case prompt.Completions:
		return "/v1/completions"
	case prompt.Messages:
		return "/v1/messages"
	case prompt.Responses:
		return "/v1/responses"
	}
	return "/v1/chat/completions"
}

// header names the session as its client does.
func (s *Session) header() http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	if s.Client.Family == prompt.Messages {
		h.Set("Anthropic-Version", "2023-06-01")
	}
	switch s.Client.Named {
	case SessionID:
		h.Set("X-Session-Id", s.ID)
		if s.Parent != nil {
			h.Set("X-Parent-Session-Id", s.Parent.ID)
		}
	case ClaudeStyle:
		h.Set("X-Claude-Code-Session-Id", s.ID)
		if s.Kind == SubAgent {
			h.Set("X-Claude-Code-Session-Id", s.Parent.ID)
			h.Set("X-Claude-Code-Agent-Id", s.ID)
		}
	case CodexStyle:
		h.Set("Thread-Id", s.ID)
		h.Set("Session-Id", s.ID)
		switch s.Kind {
		case SubAgent:
			h.Set("Session-Id", s.Parent.ID)
			h.Set("X-Codex-Parent-Thread-Id", s.Parent.ID)
			h.Set("X-Openai-Subagent", "collab_spawn")
		case Fork:
			h.Set("X-Codex-Turn-Metadata", `{"thread_id":"`+s.ID+`","forked_from_thread_id":"`+s.Parent.ID+`"}`)
		}
	}
	return h
}

// cacheKey is the body's prompt_cache_key, empty for clients that have none. Sub-agents of a Codex share their parent's.
func (s *Session) cacheKey() string {
	switch {
	case s.Client.Named == CodexStyle && s.Kind == SubAgent:
		return s.Parent.ID
	case s.Client.Named == CodexStyle, s.Client.Named == CacheKey:
		return s.ID
	}
	return ""
}
