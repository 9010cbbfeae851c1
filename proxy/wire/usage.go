package wire

import (
	"bytes"

	"github.com/warmring/warmring/ring/prompt"
)

// Usage is what an engine says about the tokens of one answer. -1 is "not reported", never "none": an engine that
// does not report cached tokens must not look like one that had none (C203).
type Usage struct {
	Prompt int // all tokens of the prompt, cached ones included, whatever the family's own arithmetic is
	Cached int // tokens of Prompt that came from the engine's cache
	Output int // tokens generated
}

var unknownUsage = Usage{-1, -1, -1}

// tally gathers usage over a stream. The last value of a field wins (C056): engines that report usage in each
// chunk report running totals.
type tally struct {
	reported Usage
	timings  Usage // llama.cpp's own block: there without being asked for, so a fallback
}

func (t *tally) reset() { t.reported, t.timings = unknownUsage, unknownUsage }

func (t *tally) usage() Usage {
	u := t.reported
	if u.Prompt < 0 {
		u.Prompt = t.timings.Prompt
	}
	if u.Cached < 0 {
		u.Cached = t.timings.Cached
	}
	if u.Output < 0 {
		u.Output = t.timings.Output
	}
	return u
}

// readUsage takes one usage object and says whether it was one (a tool's schema may have a property of that name).
//
// Chat, completions and responses count cached tokens inside the prompt. The messages family counts them beside
// input_tokens: prompt = input + cache read + cache creation, and so do vLLM (since its pull request 40912), SGLang and llama.cpp.
// vLLM's message_start has the whole prompt as input_tokens and no cache fields, its message_delta has all three; SGLang's
// and llama.cpp's message_start has all, the message_delta only the output. So an object that names input_tokens
// replaces the prompt, and the sum is always taken within one object.
//
// A prompt of 0 tokens is a default, not a count: SGLang sends it with aborted and refused requests.
func (t *tally) readUsage(object members) bool {
	prompt, cached, output, beside := -1, -1, -1, 0
	for key, ok := object.next(); ok; key, ok = object.next() {
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			setNumber(&prompt, &object)
		case "completion_tokens", "output_tokens":
			setNumber(&output, &object)
		case "prompt_tokens_details", "input_tokens_details":
			if object.kind() != '{' {
				continue
			}
			details := object.object()
			for key, ok := details.next(); ok; key, ok = details.next() {
				if string(key) == "cached_tokens" {
					setNumber(&cached, &details)
				}
			}
		case "cache_read_input_tokens":
			if n, ok := object.number(); ok {
				cached = n
				beside += n
			}
		case "cache_creation_input_tokens":
			if n, ok := object.number(); ok {
				beside += n
			}
		}
	}
	if prompt < 0 && cached < 0 && output < 0 {
		return false
	}
	if prompt >= 0 {
		prompt += beside
	}
	if prompt == 0 {
		prompt, cached = -1, -1
	}
	if prompt >= 0 {
		t.reported.Prompt = prompt
	}
	if cached >= 0 {
		t.reported.Cached = cached
	}
	if output >= 0 {
		t.reported.Output = output
	}
	return true
}

// readTimings takes llama.cpp's timings block: prompt_n is what was computed, cache_n what was found.
func (t *tally) readTimings(object members) {
	computed := -1
	for key, ok := object.next(); ok; key, ok = object.next() {
		switch string(key) {
		case "prompt_n":
			setNumber(&computed, &object)
		case "cache_n":
			setNumber(&t.timings.Cached, &object)
		case "predicted_n":
			setNumber(&t.timings.Output, &object)
		}
	}
	if computed >= 0 && t.timings.Cached >= 0 {
		t.timings.Prompt = computed + t.timings.Cached
	}
}

func setNumber(to *int, m *members) {
	if n, ok := m.number(); ok {
		*to = n
	}
}

// wholeScan bounds the answers that ReadAnswer walks member by member; in longer ones the usage is searched from the end.
const wholeScan = 32 << 10

// ReadAnswer reads a complete JSON answer of family f: its usage and, for responses, its id (a part of body). Missing,
// null and unknown fields are fine (C181); what is not there is -1 and nil.
func ReadAnswer(f prompt.Family, body []byte) (Usage, []byte) {
	var t tally
	t.reset()
	var id []byte
	head := body
	if len(head) > wholeScan {
		head = head[:wholeScan]
	}
	top := membersOf(head, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch string(key) {
		case "usage":
			if top.kind() == '{' && top.whole() {
				t.readUsage(top.object())
			}
		case "timings":
			if top.kind() == '{' && top.whole() {
				t.readTimings(top.object())
			}
		case "id":
			if f == prompt.Responses && top.kind() == '"' {
				id = top.text()
			}
		}
	}
	if len(head) < len(body) && t.reported == unknownUsage {
		t.readLastUsage(body)
	}
	return t.usage(), id
}

// readLastUsage looks for usage from the end. A string's content cannot be taken for it, its quotes are escaped;
// an object deep inside that has the same name and the same number fields can, if it comes last.
func (t *tally) readLastUsage(body []byte) {
	for tries := 0; tries < 8; tries++ {
		i := bytes.LastIndex(body, []byte(`"usage"`))
		if i < 0 {
			return
		}
		if at := valueOfKey(body, i+len(`"usage"`)); at > 0 && body[at] == '{' && t.readUsage(membersOf(body, at)) {
			return
		}
		body = body[:i]
	}
}

// usageKey starts with the rarest letter of `"usage"`: a search for it stops a few times an event, not at each quote.
var usageKey = []byte(`ge"`)

// valueOfKey returns where the value starts of a key whose closing quote ends at end, if that key is "usage"; else 0.
func valueOfKey(b []byte, end int) int {
	if end < len(`"usage"`) || string(b[end-len(`"usage"`):end-len(`ge"`)]) != `"usa` {
		return 0
	}
	i := skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return 0
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return 0
	}
	return i
}

// usageObject returns where the first usage object in b starts; 0 if there is none (a null is none).
func usageObject(b []byte) int {
	for from := 0; ; {
		i := bytes.Index(b[from:], usageKey)
		if i < 0 {
			return 0
		}
		from += i + len(usageKey)
		if at := valueOfKey(b, from); at > 0 && b[at] == '{' {
			return at
		}
	}
}
