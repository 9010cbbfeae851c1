package prompt

// reuse collects what the outermost members of a body say about the engine's prefix cache: that the request has its whole
// prompt computed, whatever of it is cached. Mostly because probabilities of the prompt's own tokens are asked for, which
// are not kept. A repeated member replaces what the earlier one said.
type reuse uint8

const (
	promptProbabilities reuse = 1 << iota // prompt_logprobs; vLLM: skip_reading_prefix_cache
	promptTokens                          // prompt_logprob_token_ids; vLLM: the same
	probabilitiesFrom                     // logprob_start_len; SGLang: nothing cached is read from there on
	echoed                                // echo
	probabilities                         // logprobs
	noTopProbabilities                    // top_logprobs is null
	skipped                               // skip_reading_prefix_cache itself
	notCached                             // cache_prompt is false; llama.cpp
	anyOfThem           = promptProbabilities | promptTokens | probabilitiesFrom | skipped | notCached
)

// say takes down the outermost member key, whose value begins with first. Booleans that are written as numbers or texts,
// which engines accept, count as true unless they are 0.
func (r *reuse) say(key []byte, first byte) {
	var what reuse
	said := first != 'n' // null says nothing
	switch string(key) {
	case "prompt_logprobs":
		what = promptProbabilities
	case "prompt_logprob_token_ids":
		what = promptTokens
	case "logprob_start_len":
		what, said = probabilitiesFrom, said && first != '-' // -1 is the output's alone
	case "logprobs":
		what, said = probabilities, said && first != 'f' // 0 is a wish too
	case "top_logprobs":
		what, said = noTopProbabilities, !said
	case "echo":
		what, said = echoed, said && first != 'f' && first != '0'
	case "skip_reading_prefix_cache":
		what, said = skipped, said && first != 'f' && first != '0'
	case "cache_prompt":
		what, said = notCached, first == 'f' || first == '0'
	default:
		return
	}
	*r &^= what
	if said {
		*r |= what
	}
}

// none tells whether nothing cached is read for a request of that family. An echo has probabilities if any are asked for;
// vLLM takes a chat's top_logprobs, 0 by default, for such a wish.
func (r reuse) none(family Family) bool {
	switch {
	case r&anyOfThem != 0:
		return true
	case r&echoed == 0:
		return false
	case family == Chat:
		return r&noTopProbabilities == 0
	}
	return family == Completions && r&probabilities != 0
}
