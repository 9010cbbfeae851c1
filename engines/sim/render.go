package sim

import (
	"bytes"
	"encoding/binary"
)

// Tokenizer turns a rendered prompt into token ids. Nil means one token per 4 bytes.
type Tokenizer func(rendered []byte) []uint64

// tokenBytes is the size of a token of the built-in tokenizer. Messages are padded to it, as special
// tokens separate them in a real template, so a conversation's tokens are a prefix of its
// continuation's, the generated ones included.
const tokenBytes = 4

// renderer is the chat template: tools, system, then each message as role and content. What real
// templates do not show the model (cache_control, ids, reasoning of earlier turns, white space between
// JSON tokens) is not rendered. A text and a list with that one text part render equal.
type renderer struct {
	buf          []byte
	call         *call
	stripBilling bool
}

const (
	markRole   = 1 // role, then text
	markEnd    = 2 // end of a message
	markCall   = 3 // tool call: name, zero, arguments
	markTool   = 4 // tool definition
	markObject = 5 // other content, as JSON
)

func (r *renderer) pad() {
	for len(r.buf)%tokenBytes != 0 {
		r.buf = append(r.buf, 0)
	}
}

func (r *renderer) open(role string) {
	r.buf = append(append(r.buf, markRole), role...)
	r.pad()
}

func (r *renderer) close() {
	r.pad()
	r.buf = append(r.buf, markEnd, 0, 0, 0)
}

func (r *renderer) tools(list []byte) {
	eachItem(list, func(v []byte) {
		var kind string
		nested := v
		eachField(v, func(key string, v []byte) {
			switch key {
			case "type":
				kind = unquote(v)
			case "function":
				nested = v
			}
		})
		var name, description, schema []byte
		eachField(nested, func(key string, v []byte) {
			switch key {
			case "name":
				name = v
			case "description":
				description = v
			case "parameters", "input_schema":
				schema = v
			}
		})
		r.buf = append(r.buf, markTool)
		if !isString(name) {
			r.buf = appendCompact(r.buf, v)
		} else {
			r.buf = append(appendUnquoted(r.buf, name), 0)
			if isString(description) {
				r.buf = appendUnquoted(r.buf, description)
			}
			r.buf = appendCompact(append(r.buf, 0), schema)
			r.call.tools = append(r.call.tools, tool{name: unquote(name), schema: schema, custom: kind == "custom"})
		}
		r.pad()
	})
}

// message renders a chat or Anthropic message.
func (r *renderer) message(v []byte) {
	var role string
	var content, calls []byte
	eachField(v, func(key string, v []byte) {
		switch key {
		case "role":
			role = unquote(v)
		case "content":
			content = v
		case "tool_calls":
			calls = v
		}
	})
	switch role {
	case "tool", "function":
		r.call.results++
		r.open("tool")
		r.content(content)
		r.close()
	case "user":
		r.user(content)
	default:
		r.open(role)
		r.content(content)
		eachItem(calls, func(v []byte) {
			eachField(v, func(key string, v []byte) {
				if key == "function" {
					var name, args []byte
					eachField(v, func(key string, v []byte) {
						switch key {
						case "name":
							name = v
						case "arguments":
							args = v
						}
					})
					r.toolCall(name, args)
				}
			})
		})
		r.close()
	}
}

// user renders a user message. Anthropic clients put tool results into it, which templates show as
// messages of their own, before the text.
func (r *renderer) user(content []byte) {
	own := !bytes.Contains(content, []byte(`"tool_result"`))
	if !own && !isString(content) {
		eachItem(content, func(v []byte) {
			if kind, result := partKind(v); kind == "tool_result" {
				r.call.results++
				r.open("tool")
				r.content(result)
				r.close()
			} else {
				own = true
			}
		})
	}
	if !own && !isString(content) {
		return
	}
	r.open("user")
	start := len(r.buf)
	r.content(content)
	text := r.buf[start:]
	r.call.lastUser, r.call.results = "", 0
	if bytes.Contains(text, []byte("[[call ")) {
		r.call.lastUser = string(text)
	}
	r.close()
}

func partKind(v []byte) (kind string, content []byte) {
	eachField(v, func(key string, v []byte) {
		switch key {
		case "type":
			kind = unquote(v)
		case "content":
			content = v
		}
	})
	return kind, content
}

// content renders a string, or a list of parts.
func (r *renderer) content(v []byte) {
	if isString(v) {
		r.buf = appendUnquoted(r.buf, v)
		return
	}
	texts := 0
	eachItem(v, func(v []byte) {
		var kind string
		var text, name, input []byte
		eachField(v, func(key string, v []byte) {
			switch key {
			case "type":
				kind = unquote(v)
			case "text":
				text = v
			case "name":
				name = v
			case "input":
				input = v
			}
		})
		switch kind {
		case "text", "input_text", "output_text", "":
			if !isString(text) {
				return
			}
			if r.stripBilling && bytes.HasPrefix(text, []byte(`"x-anthropic-billing-header:`)) {
				return // vLLM after 0.17.1 drops Claude Code's changing line
			}
			if texts++; texts > 1 {
				r.buf = append(r.buf, '\n')
			}
			r.buf = appendUnquoted(r.buf, text)
		case "tool_use":
			r.toolCall(name, input)
		case "tool_result", "thinking", "redacted_thinking", "reasoning":
		default:
			r.buf = appendCompact(append(r.buf, markObject), v)
		}
	})
}

func (r *renderer) toolCall(name, args []byte) {
	if !isString(name) {
		return
	}
	r.pad()
	r.buf = append(appendUnquoted(append(r.buf, markCall), name), 0)
	if isString(args) {
		r.buf = appendUnquoted(r.buf, args)
	} else {
		r.buf = appendCompact(r.buf, args)
	}
	r.pad()
}

// responsesItem renders one item of a Responses input list.
func (r *renderer) responsesItem(v []byte) {
	var kind, role string
	var content, name, args, output []byte
	eachField(v, func(key string, v []byte) {
		switch key {
		case "type":
			kind = unquote(v)
		case "role":
			role = unquote(v)
		case "content":
			content = v
		case "name":
			name = v
		case "arguments", "input":
			args = v
		case "output":
			output = v
		}
	})
	switch kind {
	case "", "message":
		if role == "user" {
			r.user(content)
			return
		}
		r.open(role)
		r.content(content)
		r.close()
	case "function_call", "custom_tool_call":
		r.open("assistant")
		r.toolCall(name, args)
		r.close()
	case "function_call_output", "custom_tool_call_output":
		r.call.results++
		r.open("tool")
		r.content(output)
		r.close()
	case "reasoning", "item_reference":
	case "additional_tools":
		eachField(v, func(key string, v []byte) {
			if key == "tools" {
				r.tools(v)
			}
		})
	default:
		r.buf = appendCompact(append(r.buf, markObject), v)
		r.pad()
	}
}

// HashRendered makes a Prompt of rendered text with the built-in tokenizer: a token is 4 bytes, the
// last one padded with zeros.
func HashRendered(root uint64, blockTokens int, rendered []byte) Prompt {
	n := (len(rendered) + tokenBytes - 1) / tokenBytes
	p := Prompt{Tokens: n, Blocks: make([]uint64, 0, n/blockTokens)}
	h, left := root, blockTokens
	for len(rendered) > 0 {
		var token uint64
		if len(rendered) >= tokenBytes {
			token = uint64(binary.LittleEndian.Uint32(rendered))
			rendered = rendered[tokenBytes:]
		} else {
			var last [tokenBytes]byte
			copy(last[:], rendered)
			token, rendered = uint64(binary.LittleEndian.Uint32(last[:])), nil
		}
		h = chain(h, token)
		if left--; left == 0 {
			p.Blocks = append(p.Blocks, h)
			left = blockTokens
		}
	}
	p.End = h
	return p
}

// tokens4 are the ids that HashRendered uses.
func tokens4(rendered []byte) []uint64 {
	ids := make([]uint64, 0, (len(rendered)+tokenBytes-1)/tokenBytes)
	for i := 0; i < len(rendered); i += tokenBytes {
		var word [tokenBytes]byte
		copy(word[:], rendered[i:])
		ids = append(ids, uint64(binary.LittleEndian.Uint32(word[:])))
	}
	return ids
}
