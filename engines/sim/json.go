package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The JSON that a request body needs: one strict pass that finds the first error, then walks over
// spans of the checked text. encoding/json takes ten times as long for a 400 KB conversation.

const maxJSONDepth = 200

type syntaxError struct{ at int }

func (e *syntaxError) Error() string { return fmt.Sprintf("bad JSON at byte %d", e.at) }

// checkJSON says whether b is one JSON value.
func checkJSON(b []byte) error {
	i, ok := skipValue(b, skipSpace(b, 0), 0)
	if ok {
		i = skipSpace(b, i)
	}
	if !ok || i != len(b) {
		return &syntaxError{at: i}
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the value at i, or where it breaks.
func skipValue(b []byte, i, depth int) (int, bool) {
	if i >= len(b) || depth > maxJSONDepth {
		return i, false
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipMany(b, i, depth, '}')
	case c == '[':
		return skipMany(b, i, depth, ']')
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(b, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return i + len(word), true
		}
	}
	return i, false
}

func skipMany(b []byte, i, depth int, end byte) (int, bool) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == end {
		return i + 1, true
	}
	for {
		ok := true
		if end == '}' {
			if i >= len(b) || b[i] != '"' {
				return i, false
			}
			if i, ok = skipString(b, i); !ok {
				return i, false
			}
			i = skipSpace(b, i)
			if i >= len(b) || b[i] != ':' {
				return i, false
			}
			i = skipSpace(b, i+1)
		}
		if i, ok = skipValue(b, i, depth+1); !ok {
			return i, false
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == end:
			return i + 1, true
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		default:
			return i, false
		}
	}
}

func skipString(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c == '\\':
			i++
			if i >= len(b) {
				return i, false
			}
			if b[i] == 'u' {
				for n := 0; n < 4; n++ {
					if i++; i >= len(b) || !isHex(b[i]) {
						return i, false
					}
				}
			} else if !bytes.ContainsRune([]byte(`"\/bfnrt`), rune(b[i])) {
				return i, false
			}
		case c < ' ':
			return i, false
		}
	}
	return i, false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipNumber(b []byte, i int) (int, bool) {
	start := i
	for i < len(b) && (b[i] >= '0' && b[i] <= '9' || bytes.IndexByte([]byte("+-.eE"), b[i]) >= 0) {
		i++
	}
	_, err := strconv.ParseFloat(string(b[start:i]), 64)
	return i, err == nil
}

// eachField calls f for every member of a checked object; key is the raw text between the quotes. It
// does nothing for other values.
func eachField(b []byte, f func(key string, value []byte)) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	i := skipSpace(b, 1)
	for b[i] != '}' {
		keyEnd, _ := skipString(b, i)
		start := skipSpace(b, skipSpace(b, keyEnd)+1)
		end, _ := skipValue(b, start, 0)
		f(string(b[i+1:keyEnd-1]), b[start:end])
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
}

// eachItem calls f for every element of a checked array. It does nothing for other values.
func eachItem(b []byte, f func(value []byte)) {
	if len(b) == 0 || b[0] != '[' {
		return
	}
	i := skipSpace(b, 1)
	for b[i] != ']' {
		end, _ := skipValue(b, i, 0)
		f(b[i:end])
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
}

func isString(b []byte) bool { return len(b) > 0 && b[0] == '"' }
func isTrue(b []byte) bool   { return string(b) == "true" }
func isNull(b []byte) bool   { return len(b) == 0 || string(b) == "null" }

// unquote is the content of a string value; "" for other values.
func unquote(b []byte) string {
	if !isString(b) {
		return ""
	}
	return string(appendUnquoted(nil, b))
}

// integer reads a whole number; other values are 0.
func integer(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return n
}

// appendUnquoted appends the content of a checked string value, escapes resolved.
func appendUnquoted(dst, b []byte) []byte {
	b = b[1 : len(b)-1]
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return append(dst, b...)
		}
		dst = append(dst, b[:i]...)
		c := b[i+1]
		b = b[i+2:]
		switch c {
		case 'n':
			dst = append(dst, '\n')
		case 't':
			dst = append(dst, '\t')
		case 'r':
			dst = append(dst, '\r')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'u':
			r := hex4(b)
			b = b[4:]
			if utf16.IsSurrogate(r) && len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(b[2:])); pair != utf8.RuneError {
					r, b = pair, b[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

func hex4(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n)
}

// appendCompact appends a checked value without the space between its tokens.
func appendCompact(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end, _ := skipString(b, i)
			dst = append(dst, b[i:end]...)
			i = end
		default:
			dst = append(dst, b[i])
			i++
		}
	}
	return dst
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
