package wire

import "bytes"

// plainChunk says that a chat or completions chunk is one of the many that carry text and nothing else to know: it
// has a choice, no usage, no timings, no error and is not aborted. It may say false too often, never true.
func plainChunk(data []byte) bool {
	return bytes.Contains(data, []byte(`ices":[{`)) &&
		usageObject(data) == 0 &&
		!bytes.Contains(data, []byte(`bort"`)) &&
		!bytes.Contains(data, []byte(`mings":`)) &&
		!bytes.Contains(data, []byte(`rror"`)) // "error": beside choices, or as the finish reason
}

// chunk reads a chat or completions chunk.
func (s *Sniffer) chunk(data []byte) {
	produced, broke, understood, flat := false, false, false, false
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch string(key) {
		case "choices":
			understood = true
			produced, broke = s.choices(data, top.value)
		case "usage":
			understood = true
			s.usage(&top)
		case "timings":
			if top.kind() == '{' && top.whole() {
				s.tally.readTimings(top.object())
			}
		case "prompt_progress":
			understood = true
		case "error":
			if !top.empty() {
				s.failAt(data, top.value)
				return
			}
		case "object":
			flat = string(top.text()) == "error"
		}
	}
	if flat {
		s.failAt(data, skipSpace(data, 0))
		return
	}
	if broke && !s.failed {
		s.failed, s.failure = true, Failure{Status: 500}
	}
	if produced || top.broken || !understood {
		s.commit()
	}
}

// choices says whether any choice has produced something or ended with finish_reason "error" (a request that
// broke inside the engine; an error object in the same chunk says more), and notes an abort.
func (s *Sniffer) choices(data []byte, at int) (produced, broke bool) {
	if data[at] != '[' {
		return false, false
	}
	for at = skipSpace(data, at+1); at < len(data) && data[at] == '{'; {
		choice := membersOf(data, at)
		for key, ok := choice.next(); ok; key, ok = choice.next() {
			switch string(key) {
			case "delta":
				if choice.kind() != '{' {
					continue
				}
				delta := choice.object()
				for key, ok := delta.next(); ok; key, ok = delta.next() {
					if string(key) != "role" && !delta.empty() {
						produced = true
					}
				}
			case "text", "message", "token_ids":
				produced = produced || !choice.empty()
			case "finish_reason":
				switch string(choice.text()) {
				case "abort":
					s.aborted = true
				case "error":
					broke = true
				default:
					produced = produced || !choice.empty()
				}
			}
		}
		if choice.broken {
			return produced, broke
		}
		at = skipSpace(data, choice.at+1)
		if at < len(data) && data[at] == ',' {
			at = skipSpace(data, at+1)
		}
	}
	return produced, broke
}
