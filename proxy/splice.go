package proxy

// splice replaces body[start:end] by text on the way to the engine. The body
// itself is never rewritten: what is not spliced leaves as it came.
type splice struct {
	start, end int
	text       []byte
}

// splices is a short list in growing order of position.
type splices struct {
	list [4]splice
	n    int
}

// add keeps the list in order. A splice that overlaps an earlier one, or one too
// many, is refused.
func (s *splices) add(start, end int, text []byte) bool {
	if s.n == len(s.list) {
		return false
	}
	i := s.n
	for i > 0 && s.list[i-1].start > start {
		i--
	}
	if (i > 0 && s.list[i-1].end > start) || (i < s.n && s.list[i].start < end) {
		return false
	}
	copy(s.list[i+1:], s.list[i:s.n])
	s.list[i] = splice{start, end, text}
	s.n++
	return true
}

// pieces appends the spliced body's pieces to dst and gives the whole length.
func (s *splices) pieces(dst [][]byte, body []byte) (pieces [][]byte, length int) {
	at := 0
	for _, sp := range s.list[:s.n] {
		if sp.start > at {
			dst = append(dst, body[at:sp.start])
			length += sp.start - at
		}
		if len(sp.text) > 0 {
			dst = append(dst, sp.text)
			length += len(sp.text)
		}
		at = sp.end
	}
	if at < len(body) {
		dst = append(dst, body[at:])
		length += len(body) - at
	}
	return dst, length
}
