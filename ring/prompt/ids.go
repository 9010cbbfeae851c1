package prompt

// idStride is after how many token ids a chain gets a point.
const idStride = 1024

// promptParts passes the value of a completions prompt: text, texts, token ids, or lists of token ids.
func (s *scanner) promptParts(i int, parts []part) ([]part, int) {
	if s.body[i] != '[' {
		pt := s.open(i)
		end := s.value(i, 1)
		if end < 0 {
			return parts, -1
		}
		if s.body[i] != '"' {
			return parts, end
		}
		return append(parts, s.close(pt, end)), end
	}
	list := i
	if i, more := s.first(i, ']'); !more || (s.body[i] != '"' && s.body[i] != '[') {
		if i < 0 {
			return parts, -1
		}
		if !more {
			return parts, i
		}
		return s.ids(list, parts)
	}
	kind := byte(0)
	more := false
	for i, more = s.first(i, ']'); more; i, more = s.next(i, ']') {
		if kind == 0 {
			kind = s.body[i]
		}
		if s.body[i] != kind {
			return parts, s.fail(whyMixed)
		}
		if kind == '[' {
			parts, i = s.ids(i, parts)
		} else {
			pt := s.open(i)
			if i = s.str(i); i > 0 {
				parts = append(parts, s.close(pt, i))
			}
		}
		if i < 0 {
			return parts, -1
		}
	}
	return parts, i
}

// ids passes a list of token ids.
func (s *scanner) ids(i int, parts []part) ([]part, int) {
	pt := s.open(i)
	pt.ids = true
	n := 0 // ids before the one at i
	more := false
	for i, more = s.first(i, ']'); more; i, more = s.next(i, ']') {
		if i, n = s.plainIDs(i, n); i == len(s.body) {
			return parts, s.fail(whyEnd)
		}
		switch s.body[i] {
		case '"', '[', '{', 't', 'f', 'n':
			return parts, s.fail(whyMixed)
		}
		if i = s.number(i); i < 0 {
			return parts, -1
		}
		if n++; n%idStride == 0 {
			s.p.marks = append(s.p.marks, uint32(i))
		}
	}
	if i < 0 {
		return parts, -1
	}
	return append(parts, s.close(pt, i)), i
}

// plainIDs passes the ids that are written the usual way: digits, a comma, perhaps one space. i is where an id begins and
// n how many there were before; it returns the same for the id where it stopped.
func (s *scanner) plainIDs(i, n int) (int, int) {
	b := s.body
	for {
		j := i
		for j < len(b) && b[j]-'0' < 10 {
			j++
		}
		if j == i || (b[i] == '0' && j > i+1) || j+2 >= len(b) || b[j] != ',' {
			return s.space(i), n
		}
		if n++; n%idStride == 0 {
			s.p.marks = append(s.p.marks, uint32(j))
		}
		if i = j + 1; b[i] == ' ' {
			s.spaced = true
			i++
		}
	}
}
