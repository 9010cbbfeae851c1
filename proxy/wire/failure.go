package wire

import (
	"bytes"
	"strings"

	"github.com/warmring/warmring/ring/prompt"
)

// Failure is an error that an engine named inside a stream, under status 200. Status is what it would have answered
// had it known in time; Message is the engine's text, at most 2 KB of it, "" if it gave none.
type Failure struct {
	Status  int
	Message string
}

const messageLimit = 2 << 10

// fail notes the error of an event that is one by its name.
func (s *Sniffer) fail(data []byte) {
	s.failAt(data, failureValue(data, s.family == prompt.Responses))
}

// failAt notes the error that stands at data[at]: an object, or a string (vLLM's 401).
func (s *Sniffer) failAt(data []byte, at int) {
	if !s.failed {
		s.failed = true
		s.failure = readFailure(data, at)
	}
}

// failureValue finds the error object: under "error", for response.failed under "response" as well, else the event itself.
func failureValue(data []byte, nested bool) int {
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch {
		case string(key) == "error" && !top.empty():
			return top.value
		case nested && string(key) == "response" && top.kind() == '{':
			response := top.object()
			for key, ok := response.next(); ok; key, ok = response.next() {
				if string(key) == "error" && !response.empty() {
					return response.value
				}
			}
		}
	}
	return skipSpace(data, 0)
}

// readFailure reads an error object. The status is the first of these that says one: code, status_code or status as
// an HTTP number; the name in code or type. Where all of them say no more than "server error", the message decides in the few cases in
// which trying again elsewhere would be wrong or right for sure: SGLang's response.failed has the code server_error for a full
// queue and for a prompt that is too long alike.
func readFailure(data []byte, at int) Failure {
	if at < len(data) && data[at] == '"' {
		f := Failure{Status: 500}
		if end := skipString(data, at); end > 0 {
			f.Message = unescape(data[at+1:end-1], messageLimit)
			f.Status = statusOfName([]byte(f.Message))
		}
		return f
	}
	status, named, message := 0, 0, ""
	m := membersOf(data, at)
	for key, ok := m.next(); ok; key, ok = m.next() {
		switch string(key) {
		case "message":
			if m.kind() == '"' {
				message = unescape(m.text(), messageLimit)
			}
		case "code", "status_code", "status", "type":
			name := m.text()
			n, isNumber := number(name)
			if name == nil {
				n, isNumber = m.number()
			}
			switch {
			case isNumber && status == 0 && n >= 400 && n <= 599:
				status = n
			case !isNumber && name != nil && (named == 0 || named == 500):
				named = statusOfName(name)
			}
		}
	}
	if status == 0 {
		status = named
		if n := statusOfMessage(message); n != 0 && (status == 0 || status == 500) {
			status = n
		}
	}
	if status == 0 {
		status = 500
	}
	if status == 529 { // Anthropic's own "overloaded": the same to us as 503
		status = 503
	}
	return Failure{Status: status, Message: message}
}

// statusOfName maps the names that engines and APIs give to errors (overloaded_error, BadRequestError,
// SERVICE_UNAVAILABLE, context_length_exceeded…). 500 if it says nothing else.
func statusOfName(name []byte) int {
	var folded [48]byte
	n := 0
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c >= 'a' && c <= 'z' && n < len(folded) {
			folded[n] = c
			n++
		}
	}
	for _, known := range []struct {
		part   string
		status int
	}{
		{"overload", 503}, {"unavailable", 503},
		{"ratelimit", 429}, {"toomanyrequests", 429}, {"quota", 429},
		{"toolarge", 413},
		{"invalidapikey", 401}, {"authentication", 401}, {"unauthorized", 401},
		{"permission", 403}, {"forbidden", 403},
		{"notfound", 404},
		{"unprocessable", 422},
		{"invalidrequest", 400}, {"badrequest", 400}, {"contextlength", 400}, {"contextsize", 400}, {"invalidprompt", 400}, {"validation", 400},
		{"notimplemented", 501},
		{"timeout", 504},
	} {
		if bytes.Contains(folded[:n], []byte(known.part)) {
			return known.status
		}
	}
	return 500
}

// statusOfMessage knows the few texts that a general code hides.
func statusOfMessage(message string) int {
	switch {
	case strings.Contains(message, "queue is full"), strings.Contains(message, "higher priority request"):
		return 503
	case strings.Contains(message, "context length"):
		return 400
	}
	return 0
}

// bounded cuts text to limit bytes, not inside a character.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && text[limit]&0xC0 == 0x80 {
		limit--
	}
	return text[:limit]
}
