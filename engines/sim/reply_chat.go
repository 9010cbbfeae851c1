package sim

func (r *reply) chatRole(b []byte) []byte {
	return data(b, func(b []byte) []byte {
		b = append(r.head(b, "chat.completion.chunk"), `,"choices":[{"index":0,"delta":{`...)
		if r.sglang() {
			return append(b, `"reasoning_content":null,"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}]}`...)
		}
		return append(b, `"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}`...)
	})
}

func (r *reply) chatDelta(b []byte, from, to int, last bool) []byte {
	a := r.answers[0]
	if a.call == nil || from == 0 {
		b = r.chatChunk(b, from, to, last && a.call == nil && !r.sglang())
	}
	if last && (a.call != nil || r.sglang()) {
		b = r.chatChunk(b, to, to, true)
	}
	return b
}

// chatChunk is one delta. Tool calls come whole with the first token; vLLM puts the finish reason on
// the last text, SGLang into a chunk of its own.
func (r *reply) chatChunk(b []byte, from, to int, finish bool) []byte {
	a := r.answers[0]
	return data(b, func(b []byte) []byte {
		b = append(r.head(b, "chat.completion.chunk"), `,"choices":[{"index":0,"delta":{`...)
		comma := false
		if r.sglang() {
			b = append(b, `"reasoning_content":null`...)
			comma = true
		}
		switch {
		case a.call != nil && from == 0 && !finish:
			if comma {
				b = append(b, ',')
			}
			b = append(b, `"tool_calls":[{"id":"call_`...)
			b = append(append(b, a.call.id...), `","type":"function","index":0,"function":{"name":`...)
			b = appendQuoted(b, a.call.name)
			b = appendQuoted(append(b, `,"arguments":`...), a.call.args)
			b = append(b, `}}]`...)
		case to > from:
			if comma {
				b = append(b, ',')
			}
			b = append(a.text(append(b, `"content":"`...), from, to), '"')
		}
		b = append(b, `},"logprobs":null,"finish_reason":`...)
		switch {
		case !finish:
			b = append(b, "null"...)
		default:
			b = append(append(append(b, '"'), r.finish(0)...), '"')
		}
		if r.sglang() {
			return append(b, `,"matched_stop":null}]}`...)
		}
		if finish {
			b = append(b, `,"stop_reason":null`...)
		}
		b = append(b, `,"token_ids":null}]`...)
		if finish && !r.call.includeUsage {
			b = append(append(b, ','), fingerprint...)
		}
		return append(b, '}')
	})
}

func (r *reply) chatWhole(b []byte) []byte {
	a := r.answers[0]
	b = append(r.head(b, "chat.completion"), `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if a.call != nil {
		b = append(b, "null"...)
	} else {
		b = append(a.text(append(b, '"'), 0, a.tokens), '"')
	}
	if r.sglang() {
		b = append(b, `,"reasoning_content":null`...)
	} else {
		b = append(b, `,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null`...)
	}
	if a.call != nil {
		b = append(append(b, `,"tool_calls":[{"id":"call_`...), a.call.id...)
		b = appendQuoted(append(b, `","type":"function","function":{"name":`...), a.call.name)
		b = append(appendQuoted(append(b, `,"arguments":`...), a.call.args), `}}]`...)
	}
	b = append(append(append(b, `},"logprobs":null,"finish_reason":"`...), r.finish(0)...), '"')
	if r.sglang() {
		b = r.usage(append(b, `,"matched_stop":null}],"usage":`...), true)
		b = append(b, `,"metadata":{"weight_version":"default","weight_versions":[{"version":"default","start":0,"end":`...)
		return append(num(b, r.output), `}]}}`...)
	}
	b = append(append(b, `,"stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,`...), fingerprint...)
	b = r.usage(append(b, `,"usage":`...), true)
	return append(b, `,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
}
