package sim

import (
	"errors"
	"fmt"
	"strings"
)

// family is one of the API shapes.
type family uint8

const (
	chat family = iota
	completions
	messages
	responses
)

func (f family) String() string {
	return [...]string{"chat", "completions", "messages", "responses"}[f]
}

// call is a parsed generation request.
type call struct {
	family       family
	model        string
	salt         string
	rid          string // SGLang's request id from the body
	stream       bool
	includeUsage bool
	ignoreEOS    bool
	maxTokens    int    // 0 = not said
	previous     string // previous_response_id
	head         int    // where the conversation begins in the rendered prompt, behind tools and instructions
	inputs       []input
	tools        []tool
	lastUser     string // text of the last message a person wrote
	results      int    // tool results after it
}

// input is one prompt: rendered text, or token ids.
type input struct {
	rendered []byte
	ids      []uint64
}

type tool struct {
	name   string
	schema []byte
	custom bool
}

var (
	errNoMessages = errors.New("messages")
	errNoPrompt   = errors.New("prompt")
	errNoInput    = errors.New("input")
	errNoTurns    = errors.New("Cannot apply chat template to an empty conversation. Provide at least one message.")
	errNotList    = errors.New("input should be a valid list")
)

// unknownResponse is the error for a previous_response_id that the engine does not know.
type unknownResponse string

func (e unknownResponse) Error() string { return "Response with id '" + string(e) + "' not found." }

// parseCall reads a body. vllm decides what only that engine strips. buf is where the prompt is
// rendered to, its capacity is used. earlier finds the conversation that a previous_response_id names;
// nil knows none.
func parseCall(f family, body, buf []byte, vllm bool, earlier func(id string) ([]byte, bool)) (*call, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	body = body[skipSpace(body, 0):]
	if body[0] != '{' {
		return nil, &syntaxError{}
	}
	c := &call{family: f}
	var system, tools, turns []byte
	eachField(body, func(key string, v []byte) {
		switch key {
		case "model":
			c.model = unquote(v)
		case "stream":
			c.stream = isTrue(v)
		case "stream_options":
			eachField(v, func(key string, v []byte) {
				if key == "include_usage" {
					c.includeUsage = isTrue(v)
				}
			})
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			if n := integer(v); n > 0 {
				c.maxTokens = n
			}
		case "ignore_eos":
			c.ignoreEOS = isTrue(v)
		case "cache_salt":
			c.salt = unquote(v)
		case "previous_response_id":
			c.previous = unquote(v)
		case "rid":
			c.rid = unquote(v)
		case "tools":
			tools = v
		case "system", "instructions":
			if (f == messages && key == "system") || (f == responses && key == "instructions") {
				system = v
			}
		case "messages", "prompt", "input":
			if key == [...]string{"messages", "prompt", "messages", "input"}[f] {
				turns = v
			}
		}
	})
	if isNull(turns) {
		return nil, [...]error{errNoMessages, errNoPrompt, errNoMessages, errNoInput}[f]
	}
	if f == completions {
		return c, c.parsePrompts(turns)
	}
	r := renderer{buf: buf[:0], call: c, stripBilling: vllm}
	r.tools(tools)
	if !isNull(system) {
		r.open("system")
		r.content(system)
		r.close()
	}
	c.head = len(r.buf)
	if f == responses && c.previous != "" {
		var known []byte
		ok := false
		if earlier != nil {
			known, ok = earlier(c.previous)
		}
		if !ok {
			return nil, unknownResponse(c.previous)
		}
		r.buf = append(r.buf, known...)
	}
	switch {
	case turns[0] == '[':
		eachItem(turns, func(v []byte) {
			if f == responses {
				r.responsesItem(v)
			} else {
				r.message(v)
			}
		})
	case f == responses && isString(turns):
		r.user(turns)
	default:
		return nil, fmt.Errorf("%s: %w", [...]string{"messages", "", "messages", "input"}[f], errNotList)
	}
	if vllm && f == chat && len(r.buf) == c.head {
		return nil, errNoTurns
	}
	r.open("assistant")
	c.inputs = []input{{rendered: r.buf}}
	return c, nil
}

// parsePrompts reads a completions prompt: text, a list of texts, token ids or a list of those.
func (c *call) parsePrompts(v []byte) error {
	switch {
	case isString(v):
		c.inputs = append(c.inputs, input{rendered: appendUnquoted(nil, v)})
	case v[0] == '[':
		var ids []uint64
		eachItem(v, func(v []byte) {
			switch v[0] {
			case '"':
				c.inputs = append(c.inputs, input{rendered: appendUnquoted(nil, v)})
			case '[':
				var ids []uint64
				eachItem(v, func(v []byte) { ids = append(ids, uint64(integer(v))) })
				c.inputs = append(c.inputs, input{ids: ids})
			default:
				ids = append(ids, uint64(integer(v)))
			}
		})
		if ids != nil {
			c.inputs = append(c.inputs, input{ids: ids})
		}
	}
	if len(c.inputs) == 0 {
		return errNoPrompt
	}
	return nil
}

// limit is how many tokens to generate and whether that is the client's limit. An answer has a
// natural end (natural tokens) unless that is 0 or the client said ignore_eos.
func (c *call) limit(natural int) (n int, limited bool) {
	if natural == 0 && len(c.tools) > 0 {
		natural = defaultAnswerTokens // agents that give tools have a generous limit and read the answer
	}
	switch {
	case c.maxTokens == 0:
		if natural == 0 {
			natural = defaultAnswerTokens
		}
		return natural, false
	case natural > 0 && natural < c.maxTokens && !c.ignoreEOS:
		return natural, false
	}
	return c.maxTokens, true
}

const defaultAnswerTokens = 16

// scripted is the tool call that the last user message orders: [[call NAME {json}]], one after another
// as results come back; ok is false when none is due.
func (c *call) scripted() (t tool, args string, ok bool) {
	text, n := c.lastUser, c.results
	for {
		i := strings.Index(text, "[[call ")
		if i < 0 {
			return tool{}, "", false
		}
		text = text[i+len("[[call "):]
		end := strings.Index(text, "]]")
		if end < 0 {
			return tool{}, "", false
		}
		// A JSON argument may itself end in ]]: take the longest reading that is valid.
		order := text[:end]
		name, raw, _ := strings.Cut(order, " ")
		for raw != "" && checkJSON([]byte(raw)) != nil {
			next := strings.Index(text[end+1:], "]]")
			if next < 0 {
				break
			}
			end += 1 + next
			_, raw, _ = strings.Cut(text[:end], " ")
		}
		if n == 0 {
			for _, t := range c.tools {
				if t.name == name {
					if raw == "" || checkJSON([]byte(raw)) != nil {
						return t, string(fillSchema(nil, t.schema)), true
					}
					return t, string(appendCompact(nil, []byte(raw))), true
				}
			}
			return tool{}, "", false
		}
		n--
		text = text[end:]
	}
}

// fillSchema makes the smallest value that a JSON schema of a tool's arguments may accept: required
// members with plain values.
func fillSchema(dst, schema []byte) []byte {
	var kind, enum, props, required []byte
	eachField(schema, func(key string, v []byte) {
		switch key {
		case "type":
			kind = v
		case "enum":
			enum = v
		case "properties":
			props = v
		case "required":
			required = v
		}
	})
	var first []byte
	eachItem(enum, func(v []byte) {
		if first == nil {
			first = v
		}
	})
	switch {
	case first != nil:
		return append(dst, first...)
	case string(kind) == `"string"`:
		return append(dst, `"x"`...)
	case string(kind) == `"integer"`, string(kind) == `"number"`:
		return append(dst, '1')
	case string(kind) == `"boolean"`:
		return append(dst, "false"...)
	case string(kind) == `"array"`:
		return append(dst, "[]"...)
	}
	dst = append(dst, '{')
	start := len(dst)
	eachField(props, func(key string, v []byte) {
		needed := false
		eachItem(required, func(r []byte) { needed = needed || string(r) == `"`+key+`"` })
		if !needed {
			return
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), key...), '"', ':')
		dst = fillSchema(dst, v)
	})
	return append(dst, '}')
}
