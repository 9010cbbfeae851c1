package prompt

import "bytes"

// What a turn is to a slice.
const (
	turnFixed  uint8 = iota // an assistant's, or unknown: nothing may end in it or behind it
	turnSystem              // system or developer: may be cut once the talk has begun
	turnUser                // a user's, or what tools answered
)

// cutTurns finds the place where the prefix ends, and notes what is cut out of the turns.
func (s *slicer) cutTurns() bool {
	v := s.turns.Start
	switch s.family {
	case Completions:
		return s.cutPrompt(v)
	case Responses:
		if s.body[v] == '"' {
			return s.cutText(v) == cutInside
		}
	}
	if s.body[v] != '[' {
		return false
	}
	closing := s.turns.End - 1
	behind := 0 // the end of the last turn that may be the last
	talk := false
	i, more := s.first(v, ']')
	for ; more; i, more = s.next(i, ']') {
		if s.ended && i >= s.goal+s.skipped {
			break
		}
		skipped := s.skipped
		t := s.turn(i)
		if t.end < 0 {
			return false
		}
		i = t.end
		if t.kind == turnUser {
			talk = true
		}
		if t.kind == turnFixed || !talk || t.content == 0 {
			continue
		}
		if s.ended && t.end <= s.goal+s.skipped {
			behind = t.end
			continue
		}
		passed := s.skipped
		s.skipped = skipped
		switch s.cutContent(t.content, t.user) {
		case cutInside:
			s.cutOut(t.end, closing)
			return s.why == ""
		case cutBehind:
			behind = t.end
			s.ended = true
		case cutBroken:
			return false
		}
		s.skipped = passed
	}
	if i < 0 || behind == 0 || s.space(behind) == closing {
		return false
	}
	s.cutOut(behind, closing)
	return true
}

// sliceTurn is one message or item.
type sliceTurn struct {
	end     int // negative: not understood
	content int // offset of its content or output, 0 = none
	kind    uint8
	user    bool // a user's message of the Anthropic family, where tools' results are parts
}

func (s *slicer) turn(i int) sliceTurn {
	b := s.body
	if b[i] != '{' {
		return sliceTurn{end: -1}
	}
	var role, kind Span
	content, output := 0, 0
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 || escaped(b[ks:ke]) {
			return sliceTurn{end: -1}
		}
		if i = s.pass(v, 3, b[ks:ke]); i < 0 {
			return sliceTurn{end: -1}
		}
		twice := false
		switch string(b[ks:ke]) {
		case "role":
			twice, role = role != Span{}, Span{v, i}
		case "type":
			twice, kind = kind != Span{}, Span{v, i}
		case "content":
			twice, content = content > 0, v
		case "output":
			twice, output = output > 0, v
		}
		if twice {
			return sliceTurn{end: -1}
		}
	}
	t := sliceTurn{end: i, content: content}
	if s.family == Responses {
		switch name := kind.Of(b); {
		case len(name) == 0 || name[0] == 'n' || string(name) == `"message"`:
		case bytes.HasSuffix(name, []byte(`_output"`)):
			t.content, t.kind = output, turnUser
			return t
		default:
			return t
		}
	}
	switch string(role.Of(b)) {
	case `"user"`:
		t.kind, t.user = turnUser, s.family == Messages
	case `"tool"`, `"function"`:
		if s.family == Chat {
			t.kind = turnUser
		}
	case `"system"`, `"developer"`:
		if s.family != Messages { // engines differ in where they put these
			t.kind = turnSystem
		}
	}
	return t
}

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

// cutParts cuts a list of parts. A user's results of tools stay complete in number, as each answers a call of the turn before:
// only the last may be cut, and nothing may end before it.
func (s *slicer) cutParts(list int, user bool) int {
	whole, mixed := 0, false // parts that start before whole must stay
	if user {
		var ok bool
		if whole, mixed, ok = s.results(list); !ok {
			return cutBroken
		}
	}
	behind, found, end := 0, cutBefore, 0
	i, more := s.first(list, ']')
	for ; more; i, more = s.next(i, ']') {
		start, skipped := i, s.skipped
		pt := s.part(i)
		if pt.end < 0 {
			return cutBroken
		}
		i, end = pt.end, pt.end
		if found == cutInside || start < whole {
			continue
		}
		if s.ended && start >= s.goal+skipped {
			break
		}
		if s.ended && pt.end <= s.goal+s.skipped {
			behind, found = pt.end, cutBehind
			continue
		}
		passed := s.skipped
		s.skipped = skipped
		inner := cutBefore
		switch {
		case pt.text > 0:
			inner = s.cutText(pt.text)
		case pt.result > 0 && !mixed:
			inner = s.cutContent(pt.result, false)
		case s.ended:
		case pt.end <= s.goal+passed:
			inner = cutBehind
		}
		s.skipped = passed
		switch inner {
		case cutBroken:
			return cutBroken
		case cutInside:
			behind, found = pt.end, cutInside
		case cutBehind:
			behind, found = pt.end, cutBehind
			s.ended = true
		}
	}
	if i < 0 {
		return cutBroken
	}
	if found == cutBefore || (found == cutBehind && behind == end) {
		return found
	}
	if more { // stopped at a part behind the goal, which was passed
		for i, more = s.next(i, ']'); more; i, more = s.next(i, ']') {
			if i = s.pass(i, 5, nil); i < 0 {
				return cutBroken
			}
		}
	}
	if i < 0 {
		return cutBroken
	}
	s.cutOut(behind, i-1)
	return cutInside
}

// results returns the offset of the last tool_result in a list, 0 if there is none, and whether other parts stand before one:
// vLLM puts these behind the results, SGLang leaves them where they are.
func (s *slicer) results(list int) (last int, mixed, ok bool) {
	skipped := s.skipped
	other := false
	i, more := s.first(list, ']')
	for ; more; i, more = s.next(i, ']') {
		start := i
		pt := s.part(i)
		if i = pt.end; i < 0 {
			return 0, false, false
		}
		if pt.isResult {
			last, mixed = start, other
		} else {
			other = true
		}
	}
	s.skipped = skipped
	return last, mixed, i > 0
}

// contentPart is one part of a list.
type contentPart struct {
	end      int // negative: not understood
	text     int // offset of its text, 0 = it is no text
	result   int // offset of what a tool answered, 0 = none
	isResult bool
}

func (s *slicer) part(i int) contentPart {
	b := s.body
	if b[i] != '{' {
		return contentPart{end: s.pass(i, 5, nil)}
	}
	var kind Span
	text, content := 0, 0
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 || escaped(b[ks:ke]) {
			return contentPart{end: -1}
		}
		if i = s.pass(v, 5, b[ks:ke]); i < 0 {
			return contentPart{end: -1}
		}
		twice := false
		switch string(b[ks:ke]) {
		case "type":
			twice, kind = kind != Span{}, Span{v, i}
		case "text":
			twice, text = text > 0, v
		case "content":
			twice, content = content > 0, v
		}
		if twice {
			return contentPart{end: -1}
		}
	}
	pt := contentPart{end: i}
	switch string(kind.Of(b)) {
	case `"text"`, `"input_text"`, `"output_text"`:
		if text > 0 && b[text] == '"' {
			pt.text = text
		}
	case `"tool_result"`:
		pt.result, pt.isResult = content, true
	}
	return pt
}
