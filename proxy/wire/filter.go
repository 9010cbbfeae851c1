package wire

import "bytes"

// filterLimit bounds what UsageFilter holds of one event. A usage-only chunk has a few hundred bytes.
const filterLimit = 64 << 10

// UsageFilter takes the usage-only chunk (no choices, but usage) out of a chat or completions stream: the proxy had
// asked the engine for it, the client had not. All other bytes pass unchanged and in order.
//
// An event is held until it is complete, because only then it is known; no longer if it has a choice or is longer
// than 64 KB. What stands in one block with the dropped chunk (a comment) goes with it. It works on any cut of the stream.
type UsageFilter struct {
	held    []byte // bytes of the current event that have not passed
	passing bool   // the current event is known to pass
	midLine bool   // the current line has a byte
	skipLF  bool   // the last byte was a CR that ended a line
	dropLF  bool   // and the event that it ended was dropped
}

// Reset makes the filter ready for a new stream. It keeps its buffer.
func (f *UsageFilter) Reset() { *f = UsageFilter{held: f.held[:0]} }

// Filter appends what may pass of src, and of what was held, to dst. It keeps nothing of src.
func (f *UsageFilter) Filter(dst, src []byte) []byte {
	lines := lineEnds{-1}
	start := 0 // what lies before has passed, was dropped or is held
	for pos := 0; pos < len(src); {
		if f.skipLF {
			f.skipLF = false
			if src[pos] == '\n' {
				pos++
				if start+1 == pos && len(f.held) == 0 && !f.passing { // the end of the event before
					if !f.dropLF {
						dst = append(dst, '\n')
					}
					start = pos
				}
				continue
			}
		}
		end := lines.next(src, pos)
		if end == len(src) {
			f.midLine = true
			break
		}
		blank := !f.midLine && end == pos
		f.midLine = false
		if src[end] == '\r' {
			if end+1 == len(src) {
				f.skipLF = true
			} else if src[end+1] == '\n' {
				end++
			}
		}
		pos = end + 1
		if !blank {
			continue
		}
		f.dropLF = false
		switch {
		case f.passing:
			dst = append(dst, src[start:pos]...)
		case len(f.held) == 0:
			if f.dropLF = usageOnly(src[start:pos]); !f.dropLF {
				dst = append(dst, src[start:pos]...)
			}
		default:
			f.held = append(f.held, src[start:pos]...)
			if f.dropLF = usageOnly(f.held); !f.dropLF {
				dst = append(dst, f.held...)
			}
		}
		start, f.passing, f.held = pos, false, f.held[:0]
	}
	rest := src[start:]
	if len(rest) == 0 {
		return dst
	}
	if f.passing {
		return append(dst, rest...)
	}
	if len(f.held)+len(rest) > filterLimit {
		f.passing = true
		dst = append(dst, f.held...)
		f.held = f.held[:0]
		return append(dst, rest...)
	}
	f.held = append(f.held, rest...)
	if bytes.Contains(f.held, []byte(`"choices":[{`)) {
		f.passing = true
		dst = append(dst, f.held...)
		f.held = f.held[:0]
	}
	return dst
}

// Flush appends what is still held at the end of the stream, an event without its blank line.
func (f *UsageFilter) Flush(dst []byte) []byte {
	if len(f.held) > 0 && !usageOnly(f.held) {
		dst = append(dst, f.held...)
	}
	f.Reset()
	return dst
}

// usageOnly says that a whole event is the usage-only chunk: one JSON object with usage, with choices that are empty,
// null or not there (C040), and with no error.
func usageOnly(event []byte) bool {
	if usageObject(event) == 0 || bytes.Contains(event, []byte(`"choices":[{`)) {
		return false
	}
	data := eventData(event)
	usage := false
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch string(key) {
		case "choices":
			if !top.empty() {
				return false
			}
		case "usage":
			usage = top.kind() == '{'
		case "error":
			if !top.empty() {
				return false
			}
		}
	}
	return usage && !top.broken
}

// eventData returns the data of one event: in place if it has one data line.
func eventData(event []byte) []byte {
	var data []byte
	found := 0
	event = bytes.TrimPrefix(event, byteOrderMark)
	lines := lineEnds{-1}
	for pos := 0; pos < len(event); {
		end := lines.next(event, pos)
		if line, ok := bytes.CutPrefix(event[pos:end], []byte("data:")); ok {
			line = bytes.TrimPrefix(line, []byte(" "))
			if found++; found == 1 {
				data = line
			} else {
				data = append(append(data[:len(data):len(data)], '\n'), line...)
			}
		}
		pos = end + 1 // the LF of a CRLF reads as one more empty line: harmless here
	}
	return data
}
