package sim

import (
	"strconv"
)

// reply writes one answer in the shape of one family and mode. Event methods append whole SSE frames.
// Shapes and key order follow the captured answers in testdata.
type reply struct {
	mode    Mode
	family  family
	call    *call
	id      string // as the family shows it
	item    string // id of the output item (responses)
	begun   int64  // creation, Unix seconds
	answers []*answer
	prompt  int // tokens, all prompts
	cached  int
	output  int // tokens produced, all answers
	block   int
	hide    bool // no cached token details
	seq     int  // responses sequence number
	opened  bool
}

func (r *reply) sglang() bool { return r.mode == SGLang }

func data(b []byte, fill func(b []byte) []byte) []byte {
	return append(fill(append(b, "data: "...)), '\n', '\n')
}

func event(b []byte, name string, fill func(b []byte) []byte) []byte {
	b = append(append(append(b, "event: "...), name...), '\n')
	return data(b, fill)
}

func num(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// begin is what is sent before any token exists.
func (r *reply) begin(b []byte) []byte {
	if r.family == responses {
		return r.responsesBegin(b)
	}
	return b
}

// first is what precedes the first token's own event.
func (r *reply) first(b []byte) []byte {
	if r.opened {
		return b
	}
	r.opened = true
	switch r.family {
	case chat:
		return r.chatRole(b)
	case messages:
		return r.messagesStart(b)
	case responses:
		return r.responsesItemAdded(b)
	}
	return b
}

// delta shows tokens from through to-1 of answer n; last says that the answer ends with them.
func (r *reply) delta(b []byte, n, from, to int, last bool) []byte {
	switch r.family {
	case chat:
		return r.chatDelta(b, from, to, last)
	case completions:
		return r.completionsDelta(b, n, from, to, last)
	case messages:
		return r.messagesDelta(b, from, to, last)
	}
	return r.responsesDelta(b, from, to, last)
}

// end is what follows the last token of the last answer.
func (r *reply) end(b []byte) []byte {
	switch r.family {
	case chat, completions:
		if r.call.includeUsage {
			b = r.usageChunk(b)
		}
		return append(b, "data: [DONE]\n\n"...)
	case messages:
		return r.messagesEnd(b)
	}
	return r.responsesEnd(b)
}

// whole is the answer of a request that does not stream.
func (r *reply) whole(b []byte) []byte {
	switch r.family {
	case chat:
		return r.chatWhole(b)
	case completions:
		return r.completionsWhole(b)
	case messages:
		return r.messagesWhole(b)
	}
	return r.responsesWhole(b)
}

// finish is answer n's finish reason, in the family's words.
func (r *reply) finish(n int) string {
	reason := r.answers[n].reason
	if r.family == messages {
		switch reason {
		case "stop":
			return "end_turn"
		case "length":
			return "max_tokens"
		case "tool_calls":
			return "tool_use"
		}
	}
	return reason
}

// usage appends the OpenAI usage object. place is where it stands, since the engines differ there in
// what they detail.
func (r *reply) usage(b []byte, whole bool) []byte {
	b = num(append(b, `{"prompt_tokens":`...), r.prompt)
	b = num(append(b, `,"total_tokens":`...), r.prompt+r.output)
	b = num(append(b, `,"completion_tokens":`...), r.output)
	b = append(b, `,"prompt_tokens_details":`...)
	switch {
	case r.hide:
		b = append(b, "null"...)
	case r.sglang():
		b = append(num(append(b, `{"cached_tokens":`...), r.cached), '}')
	default:
		b = num(append(b, `{"cached_tokens":`...), r.cached)
		switch {
		case r.family == completions && whole:
			b = append(b, `,"created_cache_tokens":null`...)
		case r.family == chat:
			b = num(append(b, `,"created_cache_tokens":`...), r.created())
		}
		if whole {
			b = append(b, `,"multimodal_tokens":null`...)
		}
		b = append(b, '}')
	}
	switch {
	case r.sglang():
		b = append(b, `,"reasoning_tokens":0`...)
		if r.family == chat {
			b = append(b, `,"completion_tokens_details":null`...)
		}
	case whole:
		b = append(b, `,"completion_tokens_details":null`...)
	}
	return append(b, '}')
}

// created is how many prompt tokens the request added to the cache: its full blocks.
func (r *reply) created() int { return max(r.prompt/r.block*r.block-r.cached, 0) }

const fingerprint = `"system_fingerprint":"vllm-0.32.0-00cd823a"`

// head begins a chat or completions object.
func (r *reply) head(b []byte, object string) []byte {
	b = append(append(append(b, `{"id":"`...), r.id...), `","object":"`...)
	b = append(append(b, object...), `","created":`...)
	b = strconv.AppendInt(b, r.begun, 10)
	b = append(b, `,"model":`...)
	return appendQuoted(b, r.call.model)
}

func (r *reply) usageChunk(b []byte) []byte {
	return data(b, func(b []byte) []byte {
		object := "chat.completion.chunk"
		if r.family == completions {
			object = "text_completion"
		}
		b = append(r.head(b, object), `,"choices":[],"usage":`...)
		b = r.usage(b, false)
		if !r.sglang() {
			b = append(append(b, ','), fingerprint...)
		}
		return append(b, '}')
	})
}
