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
	behind, answer := 0, false // the end of the last turn that may be the last, and whether a tool said it
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
			behind, answer = t.end, t.answer
			continue
		}
		passed := s.skipped
		s.skipped = skipped
		switch s.cutContent(t.content, t.user) {
		case cutInside:
			return s.dropTurns(t.end, closing, t.answer)
		case cutBehind:
			behind, answer = t.end, t.answer
			s.ended = true
		case cutBroken:
			return false
		}
		s.skipped = passed
	}
	if i < 0 || behind == 0 {
		return false
	}
	return s.dropTurns(behind, closing, answer)
}

// dropTurns cuts out the turns behind kept. After a tool's answer, those that answer other calls of the same turn stay, but
// without what they say: each call must have its answer, says the API, and some engines insist.
func (s *slicer) dropTurns(kept, closing int, answer bool) bool {
	i, more := s.next(kept, ']')
	for ; more && answer; i, more = s.next(i, ']') {
		t := s.turn(i)
		if t.end < 0 {
			return false
		}
		if !t.answer {
			break
		}
		if !s.empty(t.content) {
			return false
		}
		i, kept = t.end, t.end
	}
	if i < 0 {
		return false
	}
	if s.cutCount == 0 && s.space(kept) == closing {
		return false // that is all of the prompt
	}
	s.cutOut(kept, closing)
	return s.why == ""
}

// empty cuts out what a content says.
func (s *slicer) empty(v int) bool {
	if c := s.body[v]; v > 0 && (c == '"' || c == '[') {
		end := s.pass(v, 5, nil)
		if end < 0 {
			return false
		}
		if end-v > 2 {
			s.cutOut(v+1, end-1)
		}
	}
	return true
}

// sliceTurn is one message or item.
type sliceTurn struct {
	end     int // negative: not understood
	content int // offset of its content or output, 0 = none
	kind    uint8
	user    bool // a user's message of the Anthropic family, where tools' answers are parts
	answer  bool // a tool's answer
}

func (s *slicer) turn(i int) sliceTurn {
	b := s.body
	if b[i] != '{' {
		return sliceTurn{end: -1}
	}
	var role, kind, content, output Span
	if i = s.values(i, 3, [4]wanted{{"role", &role}, {"type", &kind}, {"content", &content}, {"output", &output}}); i < 0 {
		return sliceTurn{end: -1}
	}
	t := sliceTurn{end: i, content: content.Start}
	if s.family == Responses {
		switch name := kind.Of(b); {
		case len(name) == 0 || name[0] == 'n' || string(name) == `"message"`:
		case bytes.HasSuffix(name, []byte(`_output"`)):
			t.content, t.kind, t.answer = output.Start, turnUser, true
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
			t.kind, t.answer = turnUser, true
		}
	case `"system"`, `"developer"`:
		if s.family != Messages { // engines differ in where they put these
			t.kind = turnSystem
		}
	}
	return t
}

// wanted is a member of an object, by its name, and where to put its value's place.
type wanted struct {
	name string
	to   *Span
}

// values passes an object and notes where the wanted members' values are. It returns what comes behind it; negative, if one of these
// is there twice or a name is written with escapes.
func (s *slicer) values(i, depth int, members [4]wanted) int {
	b := s.body
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 || escaped(b[ks:ke]) {
			return -1
		}
		if i = s.pass(v, depth, b[ks:ke]); i < 0 {
			return -1
		}
		for _, m := range members {
			if string(b[ks:ke]) != m.name || m.to == nil {
				continue
			}
			if *m.to != (Span{}) {
				return -1
			}
			*m.to = Span{v, i}
		}
	}
	return i
}
