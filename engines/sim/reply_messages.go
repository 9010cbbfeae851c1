package sim

// messagesUsage is Anthropic's usage: input tokens are those neither read from the cache nor written to
// it. In vLLM's message_start (output is 0 there) they are the whole prompt.
func (r *reply) messagesUsage(b []byte, output int) []byte {
	cached, created := r.cached, r.created()
	if r.hide {
		cached, created = 0, 0
	}
	if r.sglang() {
		created = 0
	} else if output == 0 {
		cached, created = 0, 0
	}
	b = num(append(b, `{"input_tokens":`...), r.prompt-cached-created)
	b = num(append(b, `,"output_tokens":`...), output)
	switch {
	case r.sglang() && cached > 0:
		b = num(append(b, `,"cache_read_input_tokens":`...), cached)
	case !r.sglang() && output > 0 && !r.hide:
		b = num(append(b, `,"cache_creation_input_tokens":`...), created)
		b = num(append(b, `,"cache_read_input_tokens":`...), cached)
	}
	return append(b, '}')
}

func (r *reply) messagesStart(b []byte) []byte {
	b = event(b, "message_start", func(b []byte) []byte {
		b = append(append(b, `{"type":"message_start","message":{"id":"`...), r.id...)
		b = appendQuoted(append(b, `","type":"message","role":"assistant","content":[],"model":`...), r.call.model)
		if !r.sglang() {
			b = append(b, `,"stop_reason":null,"stop_sequence":null`...)
		}
		return append(r.messagesUsage(append(b, `,"usage":`...), 0), `}}`...)
	})
	return event(b, "content_block_start", func(b []byte) []byte {
		if r.sglang() {
			return append(r.messagesBlock(append(b, `{"type":"content_block_start","index":0,"content_block":`...), false), '}')
		}
		return append(r.messagesBlock(append(b, `{"type":"content_block_start","content_block":`...), false), `,"index":0}`...)
	})
}

// messagesBlock is the content block, empty as a stream begins it or full.
func (r *reply) messagesBlock(b []byte, full bool) []byte {
	a := r.answers[0]
	if a.call == nil {
		b = append(b, `{"type":"text","text":"`...)
		if full {
			b = a.text(b, 0, a.tokens)
		}
		return append(b, `"}`...)
	}
	b = append(append(b, `{"type":"tool_use","id":"toolu_`...), a.call.id...)
	b = append(appendQuoted(append(b, `","name":`...), a.call.name), `,"input":`...)
	if full {
		return append(append(b, a.call.args...), '}')
	}
	return append(b, `{}}`...)
}

func (r *reply) messagesDelta(b []byte, from, to int, last bool) []byte {
	a := r.answers[0]
	if a.call == nil || from == 0 {
		b = event(b, "content_block_delta", func(b []byte) []byte {
			b = append(b, `{"type":"content_block_delta",`...)
			if r.sglang() {
				b = append(b, `"index":0,`...)
			}
			if a.call != nil {
				b = appendQuoted(append(b, `"delta":{"type":"input_json_delta","partial_json":`...), a.call.args)
			} else {
				b = append(a.text(append(b, `"delta":{"type":"text_delta","text":"`...), from, to), '"')
			}
			b = append(b, '}')
			if !r.sglang() {
				b = append(b, `,"index":0`...)
			}
			return append(b, '}')
		})
	}
	if last {
		b = event(b, "content_block_stop", func(b []byte) []byte {
			return append(b, `{"type":"content_block_stop","index":0}`...)
		})
	}
	return b
}

func (r *reply) messagesEnd(b []byte) []byte {
	b = event(b, "message_delta", func(b []byte) []byte {
		b = append(append(b, `{"type":"message_delta","delta":{"stop_reason":"`...), r.finish(0)...)
		if r.sglang() {
			return append(num(append(b, `"},"usage":{"output_tokens":`...), r.output), `}}`...)
		}
		return append(r.messagesUsage(append(b, `","stop_sequence":null},"usage":`...), r.output), '}')
	})
	return r.messagesStop(b)
}

func (r *reply) messagesStop(b []byte) []byte {
	return event(b, "message_stop", func(b []byte) []byte { return append(b, `{"type":"message_stop"}`...) })
}

func (r *reply) messagesWhole(b []byte) []byte {
	b = append(append(b, `{"id":"`...), r.id...)
	b = r.messagesBlock(append(b, `","type":"message","role":"assistant","content":[`...), true)
	b = appendQuoted(append(b, `],"model":`...), r.call.model)
	b = append(append(b, `,"stop_reason":"`...), r.finish(0)...)
	return append(r.messagesUsage(append(b, `","usage":`...), r.output), '}')
}
