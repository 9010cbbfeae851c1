package sim

func (r *reply) completionsDelta(b []byte, n, from, to int, last bool) []byte {
	return data(b, func(b []byte) []byte {
		b = num(append(r.head(b, "text_completion"), `,"choices":[{"index":`...), n)
		b = append(r.answers[n].text(append(b, `,"text":"`...), from, to), `","logprobs":null,"finish_reason":`...)
		if last {
			b = append(append(append(b, '"'), r.finish(n)...), '"')
		} else {
			b = append(b, "null"...)
		}
		if r.sglang() {
			return append(b, `,"matched_stop":null}],"usage":null}`...)
		}
		b = append(b, `,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]`...)
		if last && !r.call.includeUsage {
			b = append(append(b, ','), fingerprint...)
		}
		return append(b, '}')
	})
}

func (r *reply) completionsWhole(b []byte) []byte {
	b = append(r.head(b, "text_completion"), `,"choices":[`...)
	for n, a := range r.answers {
		if n > 0 {
			b = append(b, ',')
		}
		b = num(append(b, `{"index":`...), n)
		b = append(a.text(append(b, `,"text":"`...), 0, a.tokens), `","logprobs":null,"finish_reason":"`...)
		b = append(append(b, r.finish(n)...), '"')
		if r.sglang() {
			b = append(b, `,"matched_stop":null}`...)
		} else {
			b = append(b, `,"stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}`...)
		}
	}
	if r.sglang() {
		b = r.usage(append(b, `],"usage":`...), true)
		return append(b, `,"metadata":{"weight_version":"default"}}`...)
	}
	b = append(append(b, `],"service_tier":null,`...), fingerprint...)
	b = r.usage(append(b, `,"usage":`...), true)
	return append(b, `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
}
