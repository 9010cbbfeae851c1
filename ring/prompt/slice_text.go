package prompt

import "bytes"

// cutText cuts the string at v.
func (s *slicer) cutText(v int) int {
	b := s.body
	end := s.str(v)
	if end < 0 {
		return cutBroken
	}
	start, last := v+1, end-1
	if !s.ended {
		s.goal = max(s.goal, start+minSlice-s.skipped) // the first place there is
	}
	goal := s.goal + s.skipped
	switch {
	case goal >= last && last == start && !s.ended:
		return cutBefore // an empty text is no place to end
	case goal >= last:
		return cutBehind
	}
	at := cutAt(b, start, goal)
	if at <= start {
		return cutBefore
	}
	s.ended = true
	s.cutOut(at, last)
	return cutInside
}

// cutAt returns where to cut a string's content, which begins at start, for a prefix that ends at goal or a little before:
// where white space begins, since tokenizers merge letters with letters and a blank with the word behind it; else between
// two characters. Content goes on at goal.
func cutAt(b []byte, start, goal int) int {
	if goal <= start {
		return start
	}
	goal = boundary(b, start, goal)
	at := goal
	blank := true // what stands before the window is not known
	for i := boundary(b, start, max(start, goal-minSlice)); i <= goal; {
		n, white := unit(b, i)
		if white && !blank {
			at = i
		}
		blank = white
		i += n
	}
	return at
}

// unit returns the length of the escape or byte at i, and whether it is white space.
func unit(b []byte, i int) (n int, white bool) {
	switch b[i] {
	case ' ':
		return 1, true
	case '\\':
		switch b[i+1] {
		case 'n', 'r', 't':
			return 2, true
		case 'u':
			return 6, false
		}
		return 2, false
	}
	return 1, false
}

// boundary returns the last place at or before i that is not inside an escape, a pair of surrogates or a rune.
func boundary(b []byte, start, i int) int {
	if j := bytes.LastIndexByte(b[max(start, i-5):i], '\\'); j >= 0 {
		j += max(start, i-5)
		if opens(b, start, j) {
			if n, _ := unit(b, j); j+n > i {
				i = j
			}
		}
	}
	if i-6 >= start && b[i-6] == '\\' && b[i-5] == 'u' && b[i-4]|0x20 == 'd' && highHalf(b[i-3]) && opens(b, start, i-6) {
		i -= 6
	}
	for range 3 {
		if i > start && b[i]&0xC0 == 0x80 {
			i--
		}
	}
	return i
}

// highHalf tells of the third digit of a surrogate whether it is the first of a pair.
func highHalf(c byte) bool { return c == '8' || c == '9' || c|0x20 == 'a' || c|0x20 == 'b' }

// opens reports whether the backslash at i begins an escape and is not itself escaped.
func opens(b []byte, start, i int) bool {
	n := 0
	for j := i; j >= start && b[j] == '\\'; j-- {
		n++
	}
	return n&1 == 1
}

// cutPrompt cuts the prompt of a completion: a text, a list of one text, token ids, or a list of one list of ids.
func (s *slicer) cutPrompt(v int) bool {
	b := s.body
	switch b[v] {
	case '"':
		return s.cutText(v) == cutInside
	case '[':
	default:
		return false
	}
	i, more := s.first(v, ']')
	if !more {
		return false
	}
	switch b[i] {
	case '"', '[':
		end := s.pass(i, 2, nil)
		if end < 0 {
			return false
		}
		if _, more = s.next(end, ']'); more {
			return false // several prompts
		}
		if b[i] == '"' {
			return s.cutText(i) == cutInside
		}
		return s.cutIDs(i, end-1)
	}
	return s.cutIDs(v, s.turns.End-1)
}

// cutIDs cuts a list of token ids, which ends at closing, behind an id.
func (s *slicer) cutIDs(list, closing int) bool {
	b := s.body
	if bytes.IndexAny(b[list+1:closing], `"[{tfn`) >= 0 {
		return false // not only ids
	}
	goal := min(max(s.goal, list+1), closing)
	at := bytes.LastIndexByte(b[list:goal], ',')
	if at < 0 {
		if at = bytes.IndexByte(b[list:closing], ','); at < 0 {
			return false
		}
	}
	s.cutOut(list+at, closing)
	return true
}
