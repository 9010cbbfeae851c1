package prompt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// maxDepth is how deep a body may nest. Tool schemas take two levels for each object of theirs; real ones stay below 30.
const maxDepth = 64

// Reasons for the raw fallback, as they appear in Prompt.Fallback. A fixed set, so that they can be a metric's label.
const (
	whyEmpty     = "empty body"
	whyNotObject = "not a json object"
	whySyntax    = "invalid json"
	whyEnd       = "json ends early"
	whyDepth     = "nested too deep"
	whyKey       = "escaped key"
	whyTrailing  = "bytes behind the json"
	whyCuts      = "too many members to leave out"
	whyPrompt    = "no prompt found"
	whyMixed     = "prompt of mixed types"
	whyFamily    = "unknown api family"
	whySize      = "body over 2 GiB"
)

// scanner walks a body. Its methods take the offset of a value's first byte and return the offset behind the value, or a
// negative number after having noted in why what is wrong.
//
// It accepts exactly the JSON texts of RFC 8259 but for two liberties: a string's content is hopped over and not looked
// at (control characters, unknown escapes, lone surrogates, broken UTF-8: the engine decides), and keys with a backslash
// are refused where keys have a meaning here, because two readers could take such a key for different names.
type scanner struct {
	body   []byte
	p      *Prompt
	why    string
	spaced bool // white space between tokens was passed since this was last cleared

	role      uint8 // of the message walked last
	reference bool  // the item walked last is an item_reference, whose id is its content
	text      Span  // of the part walked last: its text with the quotes
	plain     bool  // the part walked last holds nothing but that text
}

func (s *scanner) fail(why string) int {
	if s.why == "" {
		s.why = why
	}
	return -1
}

// syntax fails at offset i: either the body ends there, or what stands there is wrong.
func (s *scanner) syntax(i int) int {
	if i >= len(s.body) {
		return s.fail(whyEnd)
	}
	return s.fail(whySyntax)
}

// space passes white space.
func (s *scanner) space(i int) int {
	b := s.body
	for i < len(b) {
		switch b[i] {
		case ' ', '\n', '\r', '\t':
			s.spaced = true
			i++
		default:
			return i
		}
	}
	return i
}

// str passes the string whose opening quote is at i.
func (s *scanner) str(i int) int {
	b := s.body
	j := i + 1
	// Most keys and names end within 16 bytes: not worth a call.
	if j+16 <= len(b) {
		m := quotes(binary.LittleEndian.Uint64(b[j:]))
		if m == 0 {
			j += 8
			m = quotes(binary.LittleEndian.Uint64(b[j:]))
		}
		if m != 0 {
			if j += bits.TrailingZeros64(m) / 8; b[j-1] != '\\' {
				return j + 1
			}
		}
		j = i + 1
	}
	for {
		if j = quote(b, j); j < 0 {
			return s.fail(whyEnd)
		}
		if b[j-1] != '\\' {
			return j + 1
		}
		// Runs of backslashes before two quotes never overlap, so counting back stays linear.
		k := j - 1
		for b[k-1] == '\\' {
			k--
		}
		j++
		if (j-k)&1 == 1 { // an even number of backslashes: they escape each other, not the quote
			return j
		}
	}
}

// quotes marks the lowest quote among eight bytes by the highest bit of its byte; 0 when there is none.
func quotes(eight uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	eight ^= '"' * ones
	return (eight - ones) &^ eight & highs
}

// quoteGeneric returns the offset of the first quote at or behind i, a negative number when there is none.
func quoteGeneric(b []byte, i int) int {
	n := bytes.IndexByte(b[i:], '"')
	if n < 0 {
		return -1
	}
	return i + n
}

// key passes the key at i, the colon, and white space. It returns the key's content and the offset of the member's value,
// which lies inside the body; a negative offset on failure.
func (s *scanner) key(i int) (start, end, value int) {
	b := s.body
	if i >= len(b) || b[i] != '"' {
		return 0, 0, s.syntax(i)
	}
	start = i + 1
	end = s.str(i) - 1
	if end < 0 {
		return 0, 0, -1
	}
	i = end + 1
	if i < len(b) && b[i] <= ' ' {
		i = s.space(i)
	}
	if i >= len(b) || b[i] != ':' {
		return 0, 0, s.syntax(i)
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i = s.space(i)
	}
	if i >= len(b) {
		return 0, 0, s.fail(whyEnd)
	}
	return start, end, i
}

// escaped reports whether a key is written with escapes.
func escaped(key []byte) bool { return bytes.IndexByte(key, '\\') >= 0 }

// scalar passes a number or one of the three names.
func (s *scanner) scalar(i int) int {
	b := s.body
	switch b[i] {
	case 't':
		return s.name(i, "true")
	case 'f':
		return s.name(i, "false")
	case 'n':
		return s.name(i, "null")
	}
	return s.number(i)
}

func (s *scanner) name(i int, name string) int {
	if len(s.body)-i < len(name) || string(s.body[i:i+len(name)]) != name {
		return s.fail(whySyntax)
	}
	return i + len(name)
}

// number passes a number: an optional minus, digits without a leading zero, an optional fraction, an optional exponent.
func (s *scanner) number(i int) int {
	b := s.body
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i >= len(b) {
		return s.fail(whyEnd)
	}
	switch {
	case b[i] == '0':
		i++
	case b[i]-'1' < 9:
		for i++; i < len(b) && b[i]-'0' < 10; i++ {
		}
	default:
		return s.fail(whySyntax)
	}
	if i < len(b) && b[i] == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return s.digits(i)
	}
	return i
}

// digits passes one or more digits.
func (s *scanner) digits(i int) int {
	b := s.body
	if i >= len(b) || b[i]-'0' >= 10 {
		return s.syntax(i)
	}
	for i++; i < len(b) && b[i]-'0' < 10; i++ {
	}
	return i
}

// value passes any value; i lies inside the body.
func (s *scanner) value(i, depth int) int {
	switch s.body[i] {
	case '"':
		return s.str(i)
	case '{':
		return s.object(i, depth+1, ordinary)
	case '[':
		return s.array(i, depth+1)
	}
	return s.scalar(i)
}

// array passes the array at i.
func (s *scanner) array(i, depth int) int {
	if depth > maxDepth {
		return s.fail(whyDepth)
	}
	more := false
	for i, more = s.first(i, ']'); more; i, more = s.next(i, ']') {
		if i = s.value(i, depth); i < 0 {
			return -1
		}
	}
	return i
}

// first passes the opening bracket at i. It returns the offset of the first element, or false and the offset behind the
// closing bracket of an empty list, or false and a negative number.
func (s *scanner) first(i int, closing byte) (int, bool) {
	b := s.body
	i++
	if i < len(b) && b[i] <= ' ' {
		i = s.space(i)
	}
	if i >= len(b) {
		return s.fail(whyEnd), false
	}
	if b[i] == closing {
		return i + 1, false
	}
	return i, true
}

// next passes what follows an element: a comma, then it returns the offset of the next element; or the closing bracket,
// then it returns false and the offset behind it.
func (s *scanner) next(i int, closing byte) (int, bool) {
	b := s.body
	if i < 0 {
		return -1, false
	}
	if i < len(b) && b[i] <= ' ' {
		i = s.space(i)
	}
	if i >= len(b) {
		return s.fail(whyEnd), false
	}
	if b[i] == closing {
		return i + 1, false
	}
	if b[i] != ',' {
		return s.fail(whySyntax), false
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i = s.space(i)
	}
	if i >= len(b) {
		return s.fail(whyEnd), false
	}
	return i, true
}
