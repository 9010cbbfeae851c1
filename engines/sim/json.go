package sim

import (
	"bytes"
	"errors"
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
		c := b[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		if c == '"' {
			return i + 1, true
		}
		if i++; c != '\\' || i >= len(b) {
			return i, false
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for n := 0; n < 4; n++ {
				if i++; i >= len(b) || !isHex(b[i]) {
					return i, false
				}
			}
		default:
			return i, false
		}
	}
	return i, false
}

// endOfString is skipString for checked text. A plain loop: conversations are full of escapes, between
// which searching for the next quote does not pay.
func endOfString(b []byte, i int) int {
	for i++; ; i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// endOf is skipValue for checked text.
func endOf(b []byte, i int) int {
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = endOfString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return i
		}
		i++
	}
	return i
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func skipNumber(b []byte, i int) (int, bool) {
	start := i
	if b[i] >= '1' && b[i] <= '9' { // token ids: plain whole numbers
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		if i >= len(b) || bytes.IndexByte([]byte("+-.eE"), b[i]) < 0 {
			return i, true
		}
	}
	for i < len(b) && (b[i] >= '0' && b[i] <= '9' || bytes.IndexByte([]byte("+-.eE"), b[i]) >= 0) {
		i++
	}
	_, err := strconv.ParseFloat(string(b[start:i]), 64)
	return i, err == nil || errors.Is(err, strconv.ErrRange)
}

// eachField calls f for every member of a checked object; key is the raw text between the quotes. It
// does nothing for other values.
func eachField(b []byte, f func(key string, value []byte)) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	i := skipSpace(b, 1)
	for b[i] != '}' {
		keyEnd := endOfString(b, i)
		start := skipSpace(b, skipSpace(b, keyEnd)+1)
		end := endOf(b, start)
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
		end := endOf(b, i)
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
			end := endOfString(b, i)
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
