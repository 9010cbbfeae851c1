package prompt

import "math"

// AppendSlice appends to dst the body of a request for a prefix of body's prompt and a minimal output, not streamed: an
// engine that answers it has computed and cached that prefix, and body goes on from there.
//
// share, between 0 and 1, is how much of the prompt's text the prefix is to have, in bytes and in the order in which an
// engine renders it: tools, system text, turns. The prefix ends at the last place not behind it where a prompt may end: in
// or behind the text of a user's, tool's or later system message, at white space if there is any within 64 bytes. It never
// ends inside the head or on an assistant's turn; a share that has no such place before it gets the first one there is. A
// greater share never gives a shorter prefix, but may give the same.
//
// What stands before that place is copied byte for byte, and so are all members outside the turns but those that concern
// the output alone. Behind it remain the answers to other calls of the same turn, emptied, since each call must have one.
// The output is limited to one token; in Responses bodies to three, as SGLang takes two off. slice begins with a brace,
// behind which members can be spliced in.
//
// ok is false, and slice is dst, when there is nothing to cut, when the body is not understood for certain (repeated or
// escaped keys where they matter, several prompts, unknown shapes), when it asks for more than its prompt's text says
// (background, stored conversations, truncation, hand-over between engines), or when what a slice caches would not be read
// (Prompt.BypassesCache).
//
// It does not allocate but for the growth of dst, which must not overlap body, and never panics. Its bounds are Scan's.
func AppendSlice(dst, body []byte, family Family, share float64) (slice []byte, ok bool) {
	if !(share > 0 && share < 1) || len(body) > math.MaxInt32 || family == None || family > Responses {
		return dst, false
	}
	s := slicer{scanner: scanner{body: body}, family: family}
	if !s.document() || s.turns == (Span{}) {
		return dst, false
	}
	s.goal = s.turns.Start + int(share*float64(s.head+s.turns.End-s.turns.Start-s.skipped)) - s.head
	s.skipped = 0
	if !s.cutTurns() {
		return dst, false
	}
	return s.append(dst), true
}

// slicer finds what to copy of a body. All offsets are the body's.
type slicer struct {
	scanner
	family Family

	kept     [maxKept]Span // runs of members that are copied
	keeps    int
	turns    Span // value of messages, input or prompt
	head     int  // bytes of tools and system text
	adaptive bool // thinking was taken out and is replaced
	limits   [2]bool
	reuse    reuse

	// The prefix is to end at goal + skipped: goal counts as if the bytes that are no text were not there, and skipped are
	// those passed so far.
	goal, skipped int
	ended         bool // a place where the prompt may end was passed
	cuts          [maxSliceCuts]Span
	cutCount      int
}

// maxKept bounds the runs of members to copy: a body has a few members to leave out, each once.
const maxKept = 32

// maxSliceCuts is what one cut may take: the rest of a text, of the list it is in, of the list that is in, of the turns; and
// one for each further answer to parallel calls.
const maxSliceCuts = 64

// minSlice is how much text a prefix has at least, unless the first text is shorter, and how far before the goal white
// space is looked for, in bytes.
const minSlice = 64

func (s *slicer) cutOut(start, end int) {
	if s.cutCount == maxSliceCuts {
		s.fail(whyCuts)
		return
	}
	s.cuts[s.cutCount] = Span{start, end}
	s.cutCount++
}

// append writes the members that are kept, without what was cut out of the turns, and the limit on the output.
func (s *slicer) append(dst []byte) []byte {
	b := s.body
	dst = append(dst, '{')
	for _, run := range s.kept[:s.keeps] {
		at := run.Start
		if at < s.turns.Start && s.turns.Start < run.End {
			for _, c := range s.cuts[:s.cutCount] {
				dst = append(dst, b[at:c.Start]...)
				at = c.End
			}
		}
		dst = append(append(dst, b[at:run.End]...), ',')
	}
	if s.adaptive {
		dst = append(dst, `"thinking":{"type":"adaptive"},`...)
	}
	dst = append(dst, `"stream":false`...)
	switch s.family {
	case Responses:
		return append(dst, `,"store":false,"max_output_tokens":3}`...)
	case Chat:
		// Both engines know both names; others forbid one or to have both.
		if s.limits[limitCompletion] {
			dst = append(dst, `,"max_completion_tokens":1`...)
		}
		if s.limits[limitCompletion] && !s.limits[limitTokens] {
			return append(dst, '}')
		}
	}
	return append(dst, `,"max_tokens":1}`...)
}
