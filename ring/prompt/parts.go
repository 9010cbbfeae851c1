package prompt

import "bytes"

// part is one piece of the prompt: a tool, the system text, a message, an item, a prompt.
type part struct {
	start, end   uint32 // in the body
	cuts, cutEnd uint32 // its left-out ranges, in Prompt.cuts
	mark, marks  uint32 // its token-id marks, in Prompt.marks
	role         uint8
	spaced       bool // has white space between its tokens
	ids          bool // a list of token ids
	bare         bool // text that stands for a whole user message
}

// cut is a range of the body that the canonical prompt leaves out. Canonical form needs deletions only: that is why it
// costs next to nothing.
type cut struct{ start, end uint32 }

// maxCuts bounds the memory that a hostile body can make a Prompt take.
const maxCuts = 1 << 20

// What a message's role means to the chain.
const (
	roleOther uint8 = iota
	roleUser
	roleHead // system or developer
)

// What an object is, as far as its members need special care.
const (
	ordinary uint8 = iota
	message        // role matters
	item           // Responses input item: role matters, id and status are left out
	textPart       // candidate for a list of one text
)

// cut leaves out [start, end), and forgets the cuts inside it.
func (s *scanner) cut(start, end int) {
	cuts := s.p.cuts
	for len(cuts) > 0 && int(cuts[len(cuts)-1].start) >= start {
		cuts = cuts[:len(cuts)-1]
	}
	if len(cuts) >= maxCuts {
		s.fail(whyCuts)
	}
	s.p.cuts = append(cuts, cut{uint32(start), uint32(end)})
}

// leaver leaves out elements of a list or object together with the right comma, so that what remains reads as if they
// had never been there: the comma before the element when something kept precedes it, else the comma behind it.
type leaver struct {
	kept    bool
	pending bool // the last element was left out and nothing kept precedes it: the comma behind it goes too
	comma   int  // offset behind the last kept element or left-out one, where the comma before the current element is
}

func (l *leaver) element(s *scanner, start, end int, leave bool) {
	switch {
	case !leave:
		l.kept, l.pending = true, false
	case l.kept:
		s.cut(l.comma, end)
	default:
		s.cut(start, end)
		l.pending = true
	}
	l.comma = end
}

// passed tells that the next element starts at i.
func (l *leaver) passed(s *scanner, i int) {
	if l.pending {
		s.p.cuts[len(s.p.cuts)-1].end = uint32(i)
		l.pending = false
	}
}

// object passes the object at i and leaves out what engines do not see: null members and cache_control, at any depth.
func (s *scanner) object(i, depth int, kind uint8) int {
	if depth > maxDepth {
		return s.fail(whyDepth)
	}
	b := s.body
	var l leaver
	var text Span
	plain, types, texts := true, 0, 0
	more := false
	for i, more = s.first(i, '}'); more; i, more = s.next(i, '}') {
		l.passed(s, i)
		start := i
		ks, ke, v := s.key(i)
		if v < 0 {
			return -1
		}
		key := b[ks:ke]
		leave := false
		switch b[v] {
		case '"':
			i = s.str(v)
		case '{':
			i = s.object(v, depth+1, ordinary)
		case '[':
			if k := string(key); k == "content" || k == "output" {
				i = s.textList(v, depth+1, false)
			} else {
				i = s.array(v, depth+1)
			}
		case 'n':
			i = s.name(v, "null")
			leave = true
		default:
			i = s.scalar(v)
		}
		if i < 0 {
			return -1
		}
		if len(key) == len("cache_control") && string(key) == "cache_control" {
			leave = true
			if t := &s.p.trace; t.inside && t.behind == 0 && t.marked == 0 {
				t.marked = start
			}
		}
		if kind != ordinary && !leave {
			switch kind {
			case textPart:
				switch {
				case b[v] == '"' && string(key) == "text":
					text = Span{v, i}
					texts++
				case b[v] == '"' && string(key) == "type" && textType(b[v+1:i-1]):
					types++
				default:
					plain = false
				}
			default:
				if escaped(key) {
					return s.fail(whyKey)
				}
				leave = s.member(key, v, i, kind)
			}
		}
		l.element(s, start, i, leave)
	}
	if kind == textPart {
		s.text, s.plain = text, plain && types == 1 && texts == 1
	}
	return i
}

// member looks at one member of a message or item and tells whether it is left out.
func (s *scanner) member(key []byte, v, end int, kind uint8) (leave bool) {
	switch string(key) {
	case "role":
		s.role = roleOther
		if s.body[v] == '"' {
			switch string(s.body[v+1 : end-1]) {
			case "user":
				s.role = roleUser
			case "system", "developer":
				s.role = roleHead
			}
		}
	case "type":
		s.reference = kind == item && string(s.body[v:end]) == `"item_reference"`
	case "id", "status":
		return kind == item
	}
	return false
}

func textType(t []byte) bool {
	switch string(t) {
	case "text", "input_text", "output_text":
		return true
	}
	return false
}

// billing is how Claude Code's nonce line begins. It changes with each request, and engines' templates do not show it.
const billing = "x-anthropic-billing-header:"

// textList passes a list of content parts. A list of one text hashes like the text itself: all but the string is cut.
// With nonce, parts that are Claude Code's billing line are left out first.
func (s *scanner) textList(i, depth int, nonce bool) int {
	if depth > maxDepth {
		return s.fail(whyDepth)
	}
	list := i
	var l leaver
	kept, only, plain := 0, Span{}, false
	more := false
	for i, more = s.first(i, ']'); more; i, more = s.next(i, ']') {
		l.passed(s, i)
		start := i
		leave := false
		if s.body[i] == '{' {
			if i = s.object(i, depth+1, textPart); i < 0 {
				return -1
			}
			leave = nonce && s.text.End > 0 && bytes.HasPrefix(s.body[s.text.Start+1:s.text.End], []byte(billing))
			if !leave {
				only, plain = s.text, s.plain
			}
		} else {
			if i = s.value(i, depth); i < 0 {
				return -1
			}
			plain = false
		}
		if !leave {
			kept++
		}
		l.element(s, start, i, leave)
	}
	if i > 0 && kept == 1 && plain {
		s.cut(list, only.Start)
		s.cut(only.End, i)
	}
	return i
}

// open begins a part at i; close ends it.
func (s *scanner) open(i int) part {
	s.spaced, s.role, s.reference = false, roleOther, false
	return part{start: uint32(i), cuts: uint32(len(s.p.cuts)), mark: uint32(len(s.p.marks))}
}

func (s *scanner) close(pt part, end int) part {
	if s.reference {
		s.p.cuts = s.p.cuts[:pt.cuts]
	}
	pt.end, pt.cutEnd, pt.marks = uint32(end), uint32(len(s.p.cuts)), uint32(len(s.p.marks))
	pt.role, pt.spaced = s.role, s.spaced
	return pt
}

// list passes a list whose elements are parts, and appends them to parts.
func (s *scanner) list(i int, parts []part, kind uint8) ([]part, int) {
	i, more := s.first(i, ']')
	return s.elements(i, more, parts, kind)
}

// elements passes the elements of such a list from the one at i.
func (s *scanner) elements(i int, more bool, parts []part, kind uint8) ([]part, int) {
	for ; more; i, more = s.next(i, ']') {
		pt := s.open(i)
		if s.body[i] == '{' {
			i = s.object(i, 3, kind)
		} else {
			i = s.value(i, 2)
		}
		if i < 0 {
			return parts, -1
		}
		parts = append(parts, s.close(pt, i))
	}
	return parts, i
}

// systemPart passes the value of system or instructions.
func (s *scanner) systemPart(i int, parts []part, nonce bool) ([]part, int) {
	pt := s.open(i)
	end := 0
	switch s.body[i] {
	case '[':
		end = s.textList(i, 2, nonce)
	case '"':
		end = s.str(i)
		if end > 0 && nonce && bytes.HasPrefix(s.body[i+1:end], []byte(billing)) {
			s.cut(i+1, i+1+firstLine(s.body[i+1:end-1]))
		}
	default:
		end = s.value(i, 1)
	}
	if end < 0 {
		return parts, -1
	}
	return append(parts, s.close(pt, end)), end
}

// firstLine returns the length of the first line of a string's raw content, its escaped newline included.
func firstLine(raw []byte) int {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] == 'n' {
			return i + 2
		}
		i++
	}
	return len(raw)
}
