package wire

import (
	"bytes"
	"encoding/json"
)

// members walks the members of one JSON object without decoding it. It trusts nothing: on bytes that are not JSON,
// or that end too early, it stops and says so in broken. Values are skipped only when the next key is asked for, so
// the members of a value that is cut off can still be read.
type members struct {
	json   []byte
	at     int // where the next member starts, if value is 0
	value  int // start of the current member's value; 0 before the first
	broken bool
}

// membersOf starts at the object that begins at json[at]; anything else is broken at once.
func membersOf(json []byte, at int) members {
	at = skipSpace(json, at)
	if at >= len(json) || json[at] != '{' {
		return members{json: json, at: at, broken: true}
	}
	return members{json: json, at: at + 1}
}

// next goes to the next member and returns its key as written, without quotes.
func (m *members) next() (key []byte, ok bool) {
	if m.broken {
		return nil, false
	}
	b := m.json
	i := m.at
	if m.value != 0 {
		if i = skipValue(b, m.value); i < 0 {
			m.broken = true
			return nil, false
		}
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	if i < len(b) && b[i] == '}' {
		m.at, m.value = i, 0
		return nil, false
	}
	end := skipString(b, i)
	if end < 0 {
		m.broken = true
		return nil, false
	}
	key = b[i+1 : end-1]
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		m.broken = true
		return nil, false
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		m.broken = true
		return nil, false
	}
	m.value = i
	return key, true
}

// kind returns the first byte of the current value: one of {["tfn- or a digit.
func (m *members) kind() byte { return m.json[m.value] }

// object walks the current value.
func (m *members) object() members { return membersOf(m.json, m.value) }

// text returns the current value's bytes between the quotes, still escaped; nil if it is no whole string.
func (m *members) text() []byte {
	if end := skipString(m.json, m.value); end > 0 {
		return m.json[m.value+1 : end-1]
	}
	return nil
}

// number returns the current value if it is an integer that fits 15 digits and is not negative (a fraction is cut off).
func (m *members) number() (int, bool) { return number(m.json[m.value:]) }

// whole says that the current value ends before the bytes do.
func (m *members) whole() bool { return skipValue(m.json, m.value) > 0 }

// empty says that the current value is null, false, "", [] or {}: a field that is there but says nothing.
func (m *members) empty() bool {
	b := m.json[m.value:]
	switch b[0] {
	case 'n', 'f':
		return true
	case '"':
		return len(b) > 1 && b[1] == '"'
	case '[':
		i := skipSpace(b, 1)
		return i < len(b) && b[i] == ']'
	case '{':
		i := skipSpace(b, 1)
		return i < len(b) && b[i] == '}'
	}
	return false
}

func number(b []byte) (int, bool) {
	n, digits := 0, 0
	for digits < len(b) && digits < 16 && b[digits] >= '0' && b[digits] <= '9' {
		n = n*10 + int(b[digits]-'0')
		digits++
	}
	return n, digits > 0 && digits < 16
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that starts at b[i], or -1.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' { // stops at the opening quote at the latest
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index behind the value that starts at b[i], or -1. It does not recurse, so nesting costs nothing.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; i < len(b); i++ {
			switch b[i] {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			case '"':
				end := skipString(b, i)
				if end < 0 {
					return -1
				}
				i = end - 1
			}
		}
		return -1
	}
	for start := i; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			if i == start {
				return -1
			}
			return i
		case '{', '[', '"', ':':
			return -1
		}
	}
	return -1 // a scalar never ends an object's text
}

// unescape decodes the inside of a JSON string, at most limit bytes of it. Errors are rare, so it may allocate.
func unescape(inside []byte, limit int) string {
	if len(inside) > 6*limit { // the longest escape, \uXXXX, is six bytes
		inside = inside[:6*limit]
		if cut := bytes.LastIndexByte(inside[len(inside)-12:], '\\'); cut >= 0 {
			inside = inside[:len(inside)-12+cut]
		}
	}
	quoted := make([]byte, 0, len(inside)+2)
	quoted = append(append(append(quoted, '"'), inside...), '"')
	var text string
	if json.Unmarshal(quoted, &text) != nil {
		text = string(inside)
	}
	return bounded(text, limit)
}
