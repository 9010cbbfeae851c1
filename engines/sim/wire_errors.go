package sim

import (
	"net/http"
	"strings"
)

// problem is an error an engine answers with.
type problem struct {
	status int
	kind   string // the type that the engine names
	text   string
	param  string
	code   string // a string code instead of the status, where an engine uses one
	openAI bool   // OpenAI's shape on every path
}

// kindOf is the error type an engine names for a status that a fault orders.
func kindOf(mode Mode, f family, status int) string {
	if f == messages {
		switch {
		case status == 429:
			return "rate_limit_error"
		case status == 503 || status == 529:
			return "overloaded_error"
		case status >= 500:
			return "api_error"
		}
		return "invalid_request_error"
	}
	switch status {
	case 400:
		return "BadRequestError"
	case 401:
		return "Unauthorized"
	case 404:
		return "NotFoundError"
	case 429:
		return "RateLimitError"
	}
	if mode == SGLang {
		return string(num(nil, status))
	}
	if status == 503 {
		return "ServiceUnavailableError"
	}
	return "InternalServerError"
}

// body is the error as a whole answer, in the shape of mode and family.
func (p *problem) body(mode Mode, f family) []byte {
	if f == messages && !p.openAI {
		text := p.text
		if mode == SGLang && p.status >= 500 {
			text = "Internal server error" // scrubbed there
		}
		b := appendQuoted([]byte(`{"type":"error","error":{"type":`), p.kind)
		return append(appendQuoted(append(b, `,"message":`...), text), `}}`...)
	}
	if mode == SGLang && f != responses {
		return append(p.members([]byte(`{"object":"error",`)), '}')
	}
	return append(p.members([]byte(`{"error":{`)), `}}`...)
}

func (p *problem) members(b []byte) []byte {
	b = appendQuoted(append(b, `"message":`...), p.text)
	b = appendQuoted(append(b, `,"type":`...), p.kind)
	b = append(b, `,"param":`...)
	if p.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendQuoted(b, p.param)
	}
	b = append(b, `,"code":`...)
	if p.code != "" {
		return appendQuoted(b, p.code)
	}
	return num(b, p.status)
}

// fail is the error inside a stream that has begun with status 200, to the stream's end.
func (r *reply) fail(b []byte, p *problem) []byte {
	switch r.family {
	case messages:
		if r.sglang() && !r.opened {
			r.opened = true
			zero := *r
			zero.prompt, zero.cached = 0, 0
			start := zero.messagesStart(nil)
			start = start[:strings.Index(string(start), "\n\n")+2] // without the content block
			b = append(b, start...)
		}
		b = event(b, "error", func(b []byte) []byte {
			b = appendQuoted(append(b, `{"type":"error","error":{"type":`...), p.kind)
			return append(appendQuoted(append(b, `,"message":`...), p.text), `}}`...)
		})
		if r.sglang() {
			b = r.messagesStop(b)
		}
		return b
	case responses:
		return r.responsesEvent(b, "response.failed", func(b []byte) []byte {
			return r.responsesObject(append(b, `"response":`...), "failed", p.text)
		})
	}
	b = data(b, func(b []byte) []byte {
		b = append(b, `{"error":{`...)
		if r.sglang() {
			b = append(b, `"object":"error",`...)
		}
		return append(p.members(b), `}}`...)
	})
	if r.sglang() && r.call.includeUsage {
		zero := *r
		zero.prompt, zero.cached, zero.output = 0, 0, 0
		b = zero.usageChunk(b)
	}
	return append(b, "data: [DONE]\n\n"...)
}

func tooLong(mode Mode, f family, tokens, most int) *problem {
	t, m := string(num(nil, tokens)), string(num(nil, most))
	p := &problem{status: http.StatusBadRequest, kind: "BadRequestError"}
	if mode == SGLang {
		p.text = "The input (" + t + " tokens) is longer than the model's context length (" + m + " tokens)."
		return p
	}
	p.param = "input_tokens"
	p.text = "This model's maximum context length is " + m + " tokens. However, your prompt contains at least " + t +
		" input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=" + t + ")"
	return p
}

func tooMuch(mode Mode, asked, most int) *problem {
	a, m := string(num(nil, asked)), string(num(nil, most))
	p := &problem{status: http.StatusBadRequest, kind: "BadRequestError"}
	if mode == SGLang {
		p.text = "max_completion_tokens is too large: " + a + ".This model supports at most " + m + " completion tokens."
		return p
	}
	p.param = "max_completion_tokens"
	p.text = "max_completion_tokens=" + a + " cannot be greater than max_model_len=" + m + ". Please request fewer output tokens. (parameter=max_completion_tokens, value=" + a + ")"
	return p
}

// badBody is the answer to a body that parseCall refused.
func badBody(mode Mode, f family, err error) *problem {
	p := &problem{status: http.StatusBadRequest, kind: "Bad Request"}
	at := ""
	if e, ok := err.(*syntaxError); ok {
		at = string(num(nil, e.at))
	}
	missing := map[error]string{errNoMessages: "messages", errNoPrompt: "prompt", errNoInput: "input"}[err]
	if _, ok := err.(unknownResponse); ok {
		return &problem{status: http.StatusNotFound, kind: "invalid_request_error", text: err.Error(), param: "response_id"}
	}
	if mode == SGLang && f == messages {
		p.kind = "invalid_request_error"
		switch {
		case at != "":
			p.text = at + ": JSON decode error"
		case missing != "":
			p.text = missing + ": Field required"
		default:
			p.text = err.Error()
		}
		return p
	}
	if mode != SGLang {
		p.openAI = true // validation does not know that the path is Anthropic's
	}
	switch {
	case err == errNoTurns:
		p.kind, p.text = "BadRequestError", err.Error()
	case at != "" && mode == SGLang:
		p.text = "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', " + at + "), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'unexpected character'}}"
	case at != "":
		p.param = "body." + at
		p.text = "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body." + at + "', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}"
	case missing != "" && mode == SGLang:
		p.kind, p.text = "BadRequestError", "Messages cannot be empty."
	case missing == "prompt":
		p.kind, p.param = "BadRequestError", "prompt"
		p.text = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
	case missing != "":
		p.param = "body." + missing
		p.text = "1 validation error:\n  {'type': 'missing', 'loc': 'body." + missing + "', 'msg': 'Field required', 'input': '<dict>'}"
	default:
		p.text = "1 validation error:\n  {'type': 'list_type', 'msg': '" + err.Error() + "'}"
	}
	return p
}
