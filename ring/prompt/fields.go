package prompt

import "strings"

// fieldName returns the name under which the member key of the container (an outermost member, or "" for the outermost
// object itself) is delivered in Prompt.Fields, "" when it is none that identifies a session. All that are known:
//
//	prompt_cache_key, conversation or conversation.id, previous_response_id       OpenAI
//	metadata.user_id                                                              Anthropic, Claude Code
//	session_id, session_params.session_id, extra_body.session_id                  OpenRouter, vLLM production stack
//	program_id, extra_body.program_id                                             ThunderAgent
//	litellm_session_id                                                            LiteLLM
//	client_metadata.thread_id, .session_id, .x-codex-turn-metadata, …             Codex
//	cache_salt                                                                    vLLM
//	rid                                                                           SGLang: no session, but a name that must not be given twice
func fieldName(container string, key []byte) string {
	switch container {
	case "":
		switch string(key) {
		case "prompt_cache_key":
			return "prompt_cache_key"
		case "conversation":
			return "conversation"
		case "previous_response_id":
			return "previous_response_id"
		case "session_id":
			return "session_id"
		case "program_id":
			return "program_id"
		case "litellm_session_id":
			return "litellm_session_id"
		case "cache_salt":
			return "cache_salt"
		case "rid":
			return "rid"
		}
	case "conversation":
		if string(key) == "id" {
			return "conversation"
		}
	case "metadata":
		switch string(key) {
		case "user_id":
			return "metadata.user_id"
		case "session_id":
			return "metadata.session_id"
		}
	case "extra_body":
		switch string(key) {
		case "program_id":
			return "extra_body.program_id"
		case "session_id":
			return "extra_body.session_id"
		}
	case "session_params":
		if string(key) == "session_id" {
			return "session_params.session_id"
		}
	case "client_metadata":
		switch string(key) {
		case "thread_id":
			return "client_metadata.thread_id"
		case "session_id":
			return "client_metadata.session_id"
		case "x-codex-turn-metadata":
			return "client_metadata.x-codex-turn-metadata"
		case "x-codex-parent-thread-id":
			return "client_metadata.x-codex-parent-thread-id"
		}
	}
	return ""
}

// container returns the constant name of an outermost member that may hold identity fields, "" for others.
func container(key []byte) string {
	switch string(key) {
	case "conversation":
		return "conversation"
	case "metadata":
		return "metadata"
	case "extra_body":
		return "extra_body"
	case "session_params":
		return "session_params"
	case "client_metadata":
		return "client_metadata"
	}
	return ""
}

// identity passes the value of an outermost member and notes it when it identifies a session.
func (s *scanner) identity(key []byte, v int) int {
	name := fieldName("", key)
	if name != "" {
		s.forget(name)
	}
	if in := container(key); in != "" {
		s.forget(in + ".")
		if s.body[v] == '{' {
			return s.fields(v, in)
		}
	}
	i := s.value(v, 1)
	if name != "" {
		s.note(name, v, i)
	}
	return i
}

// fields passes the object at i, whose members are identity fields or stream options.
func (s *scanner) fields(i int, in string) int {
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 {
			return -1
		}
		key := s.body[ks:ke]
		if escaped(key) {
			return s.fail(whyKey)
		}
		if i = s.value(v, 2); i < 0 {
			return -1
		}
		if in == "stream_options" {
			if string(key) == "include_usage" {
				s.p.IncludeUsage = s.body[v] == 't'
			}
			continue
		}
		if name := fieldName(in, key); name != "" {
			s.forget(name)
			s.note(name, v, i)
		}
	}
	return i
}

// note records a field whose value is a string that is not empty, or a number.
func (s *scanner) note(name string, v, end int) {
	if end < 0 {
		return
	}
	switch c := s.body[v]; {
	case c == '"' && end-v > 2:
		s.p.Fields = append(s.p.Fields, Field{name, Span{v + 1, end - 1}})
	case c-'0' < 10:
		s.p.Fields = append(s.p.Fields, Field{name, Span{v, end}})
	}
}

// forget drops the field of that name, or, for a name that ends in a dot, all fields below it.
func (s *scanner) forget(name string) {
	fields := s.p.Fields
	kept := fields[:0]
	for _, f := range fields {
		if f.Name == name || (name[len(name)-1] == '.' && strings.HasPrefix(f.Name, name)) {
			continue
		}
		kept = append(kept, f)
	}
	s.p.Fields = kept
}

// FieldNames returns all names that Prompt.Fields can hold.
func FieldNames() []string {
	return []string{
		"prompt_cache_key", "conversation", "previous_response_id", "session_id", "program_id", "litellm_session_id", "cache_salt",
		"metadata.user_id", "metadata.session_id", "extra_body.program_id", "extra_body.session_id", "session_params.session_id",
		"client_metadata.thread_id", "client_metadata.session_id", "client_metadata.x-codex-turn-metadata", "client_metadata.x-codex-parent-thread-id",
	}
}
