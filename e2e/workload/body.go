package workload

import (
	"strconv"

	"github.com/warmring/warmring/ring/prompt"
)

// toolSchema is every tool's, so that calls fit it.
const toolSchema = `{"type":"object","properties":{"path":{"type":"string"},"from":{"type":"integer"}},"required":["path"]}`

// quote appends a JSON string. Texts are printable ASCII and line feeds, for which Go's quoting is JSON's.
func quote(b []byte, s string) []byte { return strconv.AppendQuote(b, s) }

func member(b []byte, name, value string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(quote(b, name), ':')
	return quote(b, value)
}

// body writes turn n's JSON, members in the order in which the family's clients have them.
func (s *Session) body(n int) []byte {
	t := &s.Turns[n]
	pieces := s.pieces[:t.cut]
	b := make([]byte, 0, s.Tokens(n)*BytesPerToken*9/8+100*len(pieces)+2048)
	b = member(append(b, '{'), "model", s.model)
	limit := `,"max_tokens":`
	switch s.Client.Family {
	case prompt.Completions:
		b = append(b, `,"prompt":`...)
		b = quote(b, s.flat(pieces))
	case prompt.Messages:
		b = quote(append(b, `,"system":[{"type":"text","text":`...), s.head.system)
		b = append(b, `,"cache_control":{"type":"ephemeral"}}],"messages":[`...)
		b = s.list(b, pieces, messagesPiece)
		b = s.tools(append(b, `],"tools":[`...))
	case prompt.Responses:
		limit = `,"max_output_tokens":`
		b = member(b, "instructions", s.head.system)
		b = s.list(append(b, `,"input":[`...), pieces, responsesPiece)
		b = s.tools(append(b, `],"tools":[`...))
	default:
		b = quote(append(b, `,"messages":[{"role":"system","content":`...), s.head.system)
		b = append(b, `},`...)
		b = s.list(b, pieces, chatPiece)
		b = s.tools(append(b, `],"tools":[`...))
	}
	b = strconv.AppendInt(append(b, limit...), int64(t.Output), 10)
	if key := s.cacheKey(); key != "" {
		b = member(b, "prompt_cache_key", key)
	}
	if s.Client.Named == ClaudeStyle {
		id := s.ID
		if s.Kind == SubAgent {
			id = s.Parent.ID
		}
		b = quote(append(b, `,"metadata":{"user_id":`...), `{"device_id":"d","session_id":"`+id+`"}`)
		b = append(b, '}')
	}
	b = append(b, `,"stream":true`...)
	if s.Client.Usage {
		b = append(b, `,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}

// flat is the prompt as one text, for the family that knows nothing else.
func (s *Session) flat(pieces []piece) string {
	b := []byte(s.head.system)
	for i := range pieces {
		b = append(append(b, "\n\n"...), pieces[i].text...)
		b = append(b, pieces[i].args...)
	}
	return string(b)
}

func (s *Session) list(b []byte, pieces []piece, write func(b []byte, p *piece) []byte) []byte {
	for i := range pieces {
		if i > 0 {
			b = append(b, ',')
		}
		b = write(b, &pieces[i])
	}
	return b
}

// tools writes the definitions and closes their list.
func (s *Session) tools(b []byte) []byte {
	for i := range s.head.tools {
		t := &s.head.tools[i]
		if i > 0 {
			b = append(b, ',')
		}
		schema := `,"parameters":`
		switch s.Client.Family {
		case prompt.Messages:
			b, schema = append(b, '{'), `,"input_schema":`
		case prompt.Responses:
			b = member(append(b, '{'), "type", "function")
		default:
			b = append(b, `{"type":"function","function":{`...)
		}
		b = member(member(b, "name", t.name), "description", t.about)
		b = append(append(append(b, schema...), toolSchema...), '}')
		if s.Client.Family == prompt.Chat {
			b = append(b, '}')
		}
	}
	return append(b, ']')
}

const calledTool = "read_file"

func chatPiece(b []byte, p *piece) []byte {
	switch p.kind {
	case said:
		b = append(b, `{"role":"user","content":`...)
	case result:
		b = quote(append(b, `{"role":"tool","tool_call_id":`...), p.call)
		b = append(b, `,"content":`...)
	default:
		b = append(b, `{"role":"assistant","content":`...)
	}
	b = quote(b, p.text)
	if p.kind == called {
		b = quote(append(b, `,"tool_calls":[{"id":`...), p.call)
		b = append(b, `,"type":"function","function":{"name":"`+calledTool+`","arguments":`...)
		b = append(quote(b, p.args), `}}]`...)
	}
	return append(b, '}')
}

func messagesPiece(b []byte, p *piece) []byte {
	switch p.kind {
	case said:
		b = quote(append(b, `{"role":"user","content":[{"type":"text","text":`...), p.text)
	case result:
		b = quote(append(b, `{"role":"user","content":[{"type":"tool_result","tool_use_id":`...), p.call)
		b = quote(append(b, `,"content":`...), p.text)
	default:
		b = quote(append(b, `{"role":"assistant","content":[{"type":"text","text":`...), p.text)
		if p.kind == called {
			b = quote(append(b, `},{"type":"tool_use","id":`...), p.call)
			b = append(append(b, `,"name":"`+calledTool+`","input":`...), p.args...)
		}
	}
	return append(b, `}]}`...)
}

func responsesPiece(b []byte, p *piece) []byte {
	switch p.kind {
	case said:
		b = quote(append(b, `{"type":"message","role":"user","content":[{"type":"input_text","text":`...), p.text)
		return append(b, `}]}`...)
	case result:
		b = quote(append(b, `{"type":"function_call_output","call_id":`...), p.call)
		return append(quote(append(b, `,"output":`...), p.text), '}')
	}
	b = quote(append(b, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":`...), p.text)
	b = append(b, `}]}`...)
	if p.kind == called {
		b = quote(append(b, `,{"type":"function_call","call_id":`...), p.call)
		b = append(quote(append(b, `,"name":"`+calledTool+`","arguments":`...), p.args), '}')
	}
	return b
}
