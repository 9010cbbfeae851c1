package prompt

// Where a prefix may end, seen from a content.
const (
	cutBefore = iota // the goal lies before all of its places
	cutInside        // cut, and noted
	cutBehind        // the goal lies behind its text: it stays whole
	cutBroken        // not understood
)

// cutContent cuts the content at v: a text or a list of parts. user as in sliceTurn.
func (s *slicer) cutContent(v int, user bool) int {
	switch s.body[v] {
	case '"':
		return s.cutText(v)
	case '[':
		return s.cutParts(v, user)
	}
	return cutBefore
}

// cutParts cuts a list of parts. user as in sliceTurn.
func (s *slicer) cutParts(list int, user bool) int {
	whole := 0 // nothing may end in parts that start before
	if user {
		var ok bool
		if whole, ok = s.results(list); !ok {
			return cutBroken
		}
	}
	behind, end := 0, 0 // of the last part that may be the last, and of the last one passed
	i, more := s.first(list, ']')
	for ; more; i, more = s.next(i, ']') {
		start, skipped := i, s.skipped
		pt := s.part(i)
		if i, end = pt.end, pt.end; i < 0 {
			return cutBroken
		}
		if start < whole {
			continue
		}
		if s.ended && start >= s.goal+skipped {
			break
		}
		if s.ended && end <= s.goal+s.skipped {
			behind = end
			continue
		}
		passed := s.skipped
		s.skipped = skipped
		inner := cutBefore
		switch {
		case whole > 0 && start == whole: // stays whole, but may be the last
			if end <= s.goal+passed {
				inner = cutBehind
			}
		case pt.text > 0:
			inner = s.cutText(pt.text)
		case pt.answer > 0:
			inner = s.cutContent(pt.answer, false)
		}
		s.skipped = passed
		switch inner {
		case cutBroken:
			return cutBroken
		case cutInside:
			return s.dropParts(end, user)
		case cutBehind:
			behind = end
			s.ended = true
		}
	}
	switch {
	case i < 0:
		return cutBroken
	case behind == 0:
		return cutBefore
	case behind == end && !more:
		return cutBehind
	}
	return s.dropParts(behind, user)
}

// dropParts cuts out the parts behind kept; of tools' answers only what they say, as dropTurns does.
func (s *slicer) dropParts(kept int, user bool) int {
	dropped := 0 // the end of the last one cut out, if none was kept behind it
	i, more := s.next(kept, ']')
	for ; more; i, more = s.next(i, ']') {
		var pt contentPart
		if user {
			pt = s.part(i)
		} else {
			pt.end = s.pass(i, 5, nil)
		}
		if i = pt.end; i < 0 {
			return cutBroken
		}
		if !pt.isAnswer {
			dropped = i
			continue
		}
		if dropped > 0 {
			s.cutOut(kept, dropped)
		}
		kept, dropped = i, 0
		if !s.empty(pt.answer) {
			return cutBroken
		}
	}
	if i < 0 {
		return cutBroken
	}
	if dropped > 0 {
		s.cutOut(kept, dropped)
	}
	return cutInside
}

// results looks for another part before a tool_result in a list. vLLM moves such parts behind the results, SGLang leaves them where
// they are, so nothing may end before the last result is complete, whose offset it then returns; else 0.
func (s *slicer) results(list int) (whole int, ok bool) {
	skipped := s.skipped
	other := false
	i, more := s.first(list, ']')
	for ; more; i, more = s.next(i, ']') {
		start := i
		pt := s.part(i)
		if i = pt.end; i < 0 {
			return 0, false
		}
		switch {
		case !pt.isAnswer:
			other = true
		case other:
			whole = start
		}
	}
	s.skipped = skipped
	return whole, i > 0
}

// contentPart is one part of a list.
type contentPart struct {
	end      int // negative: not understood
	text     int // offset of its text, 0 = it is no text
	answer   int // offset of what a tool answered, 0 = none
	isAnswer bool
}

func (s *slicer) part(i int) contentPart {
	b := s.body
	if b[i] != '{' {
		return contentPart{end: s.pass(i, 5, nil)}
	}
	var kind, text, content Span
	if i = s.values(i, 5, [4]wanted{{"type", &kind}, {"text", &text}, {"content", &content}}); i < 0 {
		return contentPart{end: -1}
	}
	pt := contentPart{end: i}
	switch string(kind.Of(b)) {
	case `"text"`, `"input_text"`, `"output_text"`:
		if text.Start > 0 && b[text.Start] == '"' {
			pt.text = text.Start
		}
	case `"tool_result"`:
		pt.answer, pt.isAnswer = content.Start, true
	}
	return pt
}
