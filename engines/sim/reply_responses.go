package sim

import "strconv"

func (r *reply) responsesBegin(b []byte) []byte {
	for _, name := range [...]string{"response.created", "response.in_progress"} {
		b = r.responsesState(b, name, "in_progress")
	}
	return b
}

// responsesState is an event that carries the whole response object.
func (r *reply) responsesState(b []byte, name, status string) []byte {
	return r.responsesEvent(b, name, func(b []byte) []byte {
		return r.responsesObject(append(b, `"response":`...), status, "")
	})
}

// responsesEvent frames an event; the engines differ in where its type stands.
func (r *reply) responsesEvent(b []byte, name string, fill func(b []byte) []byte) []byte {
	return event(b, name, func(b []byte) []byte {
		b = append(fill(append(b, '{')), `,"sequence_number":`...)
		b = num(b, r.seq)
		r.seq++
		return append(append(append(b, `,"type":"`...), name...), `"}`...)
	})
}

func (r *reply) at(b []byte) []byte {
	b = append(append(b, `"content_index":0,"item_id":"`...), r.item...)
	return append(b, `","output_index":0`...)
}

func (r *reply) responsesItemAdded(b []byte) []byte {
	b = r.responsesEvent(b, "response.output_item.added", func(b []byte) []byte {
		return append(r.responsesItem(append(b, `"item":`...), "in_progress"), `,"output_index":0`...)
	})
	if r.answers[0].call != nil {
		return b
	}
	return r.responsesEvent(b, "response.content_part.added", func(b []byte) []byte {
		b = append(r.at(b), `,"part":{"annotations":[],"text":"","type":"output_text","logprobs":`...)
		if r.sglang() {
			return append(b, `null}`...)
		}
		return append(b, `[]}`...)
	})
}

// responsesItem is the one output item; in progress it is still empty.
func (r *reply) responsesItem(b []byte, status string) []byte {
	a := r.answers[0]
	full := status == "completed"
	if a.call != nil {
		kind, field := "function_call", "arguments"
		if a.call.custom {
			kind, field = "custom_tool_call", "input"
		}
		b = append(append(b, `{"`...), field...)
		b = append(b, `":`...)
		if full {
			b = appendQuoted(b, a.call.args)
		} else {
			b = append(b, `""`...)
		}
		b = append(append(b, `,"call_id":"call_`...), a.call.id...)
		b = appendQuoted(append(b, `","name":`...), a.call.name)
		b = append(append(append(b, `,"type":"`...), kind...), `","id":"`...)
		return append(append(append(append(b, r.item...), `","status":"`...), status...), `"}`...)
	}
	b = append(append(append(b, `{"id":"`...), r.item...), `","content":[`...)
	if full {
		b = r.responsesPart(b)
	}
	b = append(append(b, `],"role":"assistant","status":"`...), status...)
	b = append(b, `","type":"message","phase":`...)
	if r.sglang() {
		return append(b, `"final_answer"}`...)
	}
	return append(b, `null}`...)
}

func (r *reply) responsesPart(b []byte) []byte {
	a := r.answers[0]
	b = a.text(append(b, `{"annotations":[],"text":"`...), 0, a.tokens)
	return append(b, `","type":"output_text","logprobs":null}`...)
}

func (r *reply) responsesDelta(b []byte, from, to int, last bool) []byte {
	a := r.answers[0]
	if a.call != nil {
		if from > 0 {
			return b
		}
		name, done, field := "response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"
		if a.call.custom {
			name, done, field = "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input"
		}
		where := append(append([]byte(`"item_id":"`), r.item...), `","output_index":0,"`...)
		b = r.responsesEvent(b, name, func(b []byte) []byte {
			return appendQuoted(append(append(b, where...), `delta":`...), a.call.args)
		})
		return r.responsesEvent(b, done, func(b []byte) []byte {
			b = append(append(append(b, where...), field...), `":`...)
			return appendQuoted(b, a.call.args)
		})
	}
	if from < to || !r.abortedBySGLang() {
		b = r.responsesEvent(b, "response.output_text.delta", func(b []byte) []byte {
			return append(a.text(append(r.at(b), `,"delta":"`...), from, to), `","logprobs":[]`...)
		})
	}
	if !last {
		return b
	}
	b = r.responsesEvent(b, "response.output_text.done", func(b []byte) []byte {
		return append(a.text(append(r.at(b), `,"logprobs":[],"text":"`...), 0, a.tokens), '"')
	})
	return r.responsesEvent(b, "response.content_part.done", func(b []byte) []byte {
		return r.responsesPart(append(r.at(b), `,"part":`...))
	})
}

func (r *reply) responsesEnd(b []byte) []byte {
	if r.hasItem() {
		b = r.responsesEvent(b, "response.output_item.done", func(b []byte) []byte {
			return append(r.responsesItem(append(b, `"item":`...), "completed"), `,"output_index":0`...)
		})
	}
	name := "response.completed"
	if r.sglang() {
		name = "response." + r.status() // vLLM sends completed with status incomplete
	}
	return r.responsesState(b, name, r.status())
}

func (r *reply) status() string {
	switch {
	case r.answers[0].reason == "length":
		return "incomplete"
	case r.abortedBySGLang():
		return "failed"
	}
	return "completed"
}

// abortedBySGLang tells whether the response was ended from outside, which vLLM does not do.
func (r *reply) abortedBySGLang() bool { return r.sglang() && r.answers[0].reason == "abort" }

// hasItem tells whether there is an output item at the end: an aborted response has none without text.
func (r *reply) hasItem() bool                  { return !r.abortedBySGLang() || r.answers[0].tokens > 0 }
func (r *reply) responsesWhole(b []byte) []byte { return r.responsesObject(b, r.status(), "") }

// responsesObject is the response at one point of its life: in_progress, completed, incomplete, failed.
func (r *reply) responsesObject(b []byte, status, failure string) []byte {
	over := status == "completed" || status == "incomplete"
	if status == "failed" && failure == "" { // aborted
		over, failure = true, "Aborted"
	}
	b = append(append(b, `{"id":"`...), r.id...)
	created := func(b []byte) []byte {
		return strconv.AppendInt(append(b, `"created_at":`...), r.begun, 10)
	}
	output := func(b []byte) []byte {
		b = append(b, `"output":[`...)
		if over && r.hasItem() {
			b = r.responsesItem(b, "completed")
		}
		return append(b, ']')
	}
	usage := func(b []byte) []byte {
		if !over {
			return append(b, `"usage":null`...)
		}
		return r.responsesUsage(append(b, `"usage":`...))
	}
	incomplete := func(b []byte) []byte {
		if status == "incomplete" {
			return append(b, `"incomplete_details":{"reason":"max_output_tokens"}`...)
		}
		return append(b, `"incomplete_details":null`...)
	}
	limit := func(b []byte) []byte {
		b = append(b, `"max_output_tokens":`...)
		if r.call.maxTokens == 0 {
			return append(b, "null"...)
		}
		return num(b, r.call.maxTokens)
	}
	if r.sglang() {
		b = append(created(append(b, `","object":"response",`...)), `,"model":`...)
		b = append(appendQuoted(b, r.call.model), ',')
		b = append(append(output(b), `,"status":"`...), status...)
		b = append(usage(append(b, `",`...)), `,"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"error":`...)
		if failure != "" {
			b = append(appendQuoted(append(b, `{"code":"server_error","message":`...), failure), '}')
		} else {
			b = append(b, "null"...)
		}
		b = append(incomplete(append(b, ',')), `,"instructions":null,`...)
		b = append(limit(b), `,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":true,"temperature":null,"text":`...)
		if over {
			b = append(b, `{"format":{"type":"text"}}`...)
		} else {
			b = append(b, "null"...)
		}
		return append(b, `,"top_p":null,"truncation":"disabled","user":null,"metadata":{}}`...)
	}
	b = append(created(append(b, `",`...)), ',')
	b = append(incomplete(b), `,"instructions":null,"metadata":null,"model":`...)
	b = append(appendQuoted(b, r.call.model), `,"object":"response",`...)
	b = append(output(b), `,"parallel_tool_calls":true,"temperature":1.0,"tool_choice":"none","tools":[],"top_p":1.0,"background":false,`...)
	b = append(limit(b), `,"max_tool_calls":null,"previous_response_id":null,"prompt":null,"reasoning":null,"service_tier":"auto","status":"`...)
	b = append(append(b, status...), `","text":null,"top_logprobs":null,"truncation":"disabled",`...)
	b = append(usage(b), `,"user":null,"presence_penalty":0.0,"frequency_penalty":0.0,"kv_transfer_params":null,"ec_transfer_params":null,"input_messages":null,"output_messages":null`...)
	if failure != "" {
		b = append(appendQuoted(append(b, `,"error":{"code":"server_error","message":`...), failure), '}')
	}
	return append(b, '}')
}

func (r *reply) responsesUsage(b []byte) []byte {
	cached, created := r.cached, r.created()
	if r.hide {
		cached, created = 0, 0
	}
	if r.sglang() {
		created = 0
	}
	b = num(append(b, `{"input_tokens":`...), r.prompt)
	b = num(append(b, `,"input_tokens_details":{"cached_tokens":`...), cached)
	b = num(append(b, `,"cache_write_tokens":`...), created)
	if !r.sglang() {
		b = append(b, `,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]`...)
	}
	b = num(append(b, `},"output_tokens":`...), r.output)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":0`...)
	if !r.sglang() {
		b = append(b, `,"tool_output_tokens":0,"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]`...)
	}
	return append(num(append(b, `},"total_tokens":`...), r.prompt+r.output), '}')
}
