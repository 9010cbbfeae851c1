package prompt

// What becomes of a member of the outermost object.
const (
	keepMember = iota
	dropMember
	refuseMember // this body cannot be sliced
)

// The limits on the output that a chat body may have.
const (
	limitTokens = iota
	limitCompletion
)

// document walks the outermost object and finds the runs of members to keep and the turns.
func (s *slicer) document() bool {
	b := s.body
	i := 0
	if len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF { // a byte order mark
		i = 3
	}
	if i = s.space(i); i == len(b) || b[i] != '{' {
		return false
	}
	joined := false // the run before goes on
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		start := i
		ks, ke, v := s.key(i)
		if v < 0 || escaped(b[ks:ke]) {
			return false
		}
		skipped := s.skipped
		if i = s.pass(v, 1, b[ks:ke]); i < 0 {
			return false
		}
		verdict := s.member(b[ks:ke], v, i)
		if !s.isTurns(b[ks:ke]) {
			s.skipped = skipped
		}
		switch {
		case verdict == refuseMember:
			return false
		case verdict == dropMember:
			joined = false
		case joined:
			s.kept[s.keeps-1].End = i
		case s.keeps == maxKept:
			return false
		default:
			s.kept[s.keeps] = Span{start, i}
			s.keeps++
			joined = true
		}
	}
	return i >= 0 && s.space(i) == len(b) && !s.reuse.none(s.family)
}

func (s *slicer) isTurns(key []byte) bool {
	switch s.family {
	case Completions:
		return string(key) == "prompt"
	case Responses:
		return string(key) == "input"
	}
	return string(key) == "messages"
}

// member judges a member whose value is [v, end). What may change how the prompt is rendered or where it is cached is
// kept; so is what is not known. The lists follow the request types of vLLM 0.32 and SGLang 0.5.23.
func (s *slicer) member(key []byte, v, end int) int {
	b := s.body
	if s.isTurns(key) {
		if s.turns != (Span{}) {
			return refuseMember
		}
		s.turns = Span{v, end}
		return keepMember
	}
	s.reuse.say(key, b[v])
	said := b[v] != 'n' // null says nothing
	refuseIf := func(bad bool) int {
		if bad {
			return refuseMember
		}
		return dropMember
	}
	switch string(key) {
	case "tools", "functions", "system", "instructions":
		s.head += end - v
	case "max_tokens":
		s.limits[limitTokens] = said
		return dropMember
	case "max_completion_tokens":
		s.limits[limitCompletion] = said
		return dropMember
	case "stream", "stream_options", "stream_interval", "n", "best_of", "use_beam_search", "max_output_tokens", "min_tokens", "n_predict",
		"logprobs", "top_logprobs", "prompt_logprobs", "prompt_logprob_token_ids", "logprob_token_ids", "echo", "store", "include", "thinking_token_budget",
		"return_progress", "return_token_ids", "return_prompt_token_ids", "return_prompt_text", "return_tokens_as_token_ids",
		"return_token_offsets", "return_hidden_states", "return_routed_experts", "return_input_ids_in_sglext", "return_output_ids_in_sglext",
		"timings_per_token", "post_sampling_probs", "n_probs",
		"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "regex", "ebnf", "grammar", // an answer of one token fits none
		"continue_final_message": // the final message, an assistant's, is not in a prefix
		return dropMember
	case "background":
		return refuseIf(b[v] != 'f' && said)
	case "suffix": // the prompt's text is not all that is rendered, or is rendered behind it
		return refuseIf(said && end-v > 2)
	case "truncate_prompt_tokens", "session_params", "kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_room", "conversation", "prompt_embeds", "input_ids":
		return refuseIf(said)
	case "truncation": // vLLM cuts the prompt's beginning off unless this is "disabled", its default
		if s.family == Responses && string(b[v:end]) != `"disabled"` {
			return refuseMember
		}
	case "prompt": // a stored prompt of the Responses API
		if s.family == Responses {
			return refuseIf(said)
		}
	case "thinking":
		// vLLM refuses a budget that is not below max_tokens. It and SGLang render both kinds alike.
		if s.family == Messages && b[v] == '{' {
			kind, ok := s.kindOf(v)
			if !ok {
				return refuseMember
			}
			if s.adaptive = string(kind) == `"enabled"`; s.adaptive {
				return dropMember
			}
		}
	}
	return keepMember
}

// kindOf returns the raw value of the member type of the object at i, which was passed before.
func (s *slicer) kindOf(i int) (kind []byte, ok bool) {
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 || escaped(s.body[ks:ke]) {
			return nil, false
		}
		if i = s.pass(v, 2, nil); i < 0 {
			return nil, false
		}
		if string(s.body[ks:ke]) == "type" {
			kind = s.body[v:i]
		}
	}
	return kind, true
}

// pass passes the value at i of the member key and counts in skipped what is no text.
func (s *slicer) pass(i, depth int, key []byte) int {
	b := s.body
	switch b[i] {
	case '"':
		end := s.str(i)
		if end-i > minOpaque && opaque(key) {
			s.skipped += end - i
		}
		return end
	case '{':
		if depth >= maxDepth {
			return s.fail(whyDepth)
		}
		more := false
		for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
			ks, ke, v := s.key(i)
			if v < 0 {
				return -1
			}
			if i = s.pass(v, depth+1, b[ks:ke]); i < 0 {
				return -1
			}
		}
		return i
	case '[':
		if depth >= maxDepth {
			return s.fail(whyDepth)
		}
		more := false
		for i, more = s.first(i, ']'); more; i, more = s.next(i, ']') {
			if i = s.numbers(i); i < 0 {
				return s.fail(whyEnd)
			}
			if i = s.pass(i, depth+1, nil); i < 0 {
				return -1
			}
		}
		return i
	}
	return s.scalar(i)
}

// numbers passes elements of a list that are written as token ids are: digits, a comma, perhaps one space. It returns the
// offset of the element where it stopped, negative at the end of the body.
func (s *slicer) numbers(i int) int {
	b := s.body
	for {
		j := i
		for j < len(b) && b[j]-'0' < 10 {
			j++
		}
		if j == i || (b[i] == '0' && j > i+1) || j+2 >= len(b) || b[j] != ',' {
			break
		}
		if i = j + 1; b[i] == ' ' {
			i++
		}
	}
	if i = s.space(i); i == len(b) {
		return -1
	}
	return i
}

// minOpaque is from what length on strings under the names of opaque count as no text.
const minOpaque = 256

// opaque tells of a member's name whether a long value is an image, a file or a cipher.
func opaque(key []byte) bool {
	switch string(key) {
	case "url", "image_url", "data", "file_data", "encrypted_content", "signature":
		return true
	}
	return false
}
