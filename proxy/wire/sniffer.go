package wire

import (
	"bytes"

	"github.com/warmring/warmring/ring/prompt"
)

// Sniffer reads a stream of server-sent events as it passes and says what a proxy must know of it: whether the engine
// has begun to work (the commit point), whether it refused inside a 200, what it cost, and whether it came to its end.
//
// The commit point, by family (events before it are held and can be thrown away, so the request can be moved unseen):
//
//	chat         a delta with content, reasoning, tool calls, a refusal or audio, or a finish reason; not the role
//	completions  text that is not empty, or a finish reason
//	messages     any event but message_start, ping, error and message_stop
//	responses    any event but response.created, .queued, .in_progress, .failed and error
//	none         the first byte
//
// Usage-only chunks, empty choices, [DONE], comments and llama.cpp's prompt_progress commit nothing; finish_reason
// "abort" is an end without an answer. What is not understood commits: it must not be held. An event longer than
// 16 KB commits as soon as it is that long, unless its name says that it comes before any work.
//
// The zero value reads no family; call Reset first. The results depend on the bytes alone, not on how they are cut.
type Sniffer struct {
	events
	family    prompt.Family
	committed bool
	finished  bool
	aborted   bool
	failed    bool
	watch     bool // the over-long event being read may hold usage
	failure   Failure
	tally     tally
	id        [128]byte
	nid       int
}

// Reset makes the Sniffer ready for a new stream of family f. It keeps its buffer.
func (s *Sniffer) Reset(f prompt.Family) {
	*s = Sniffer{family: f, events: events{data: s.events.data[:0]}}
	s.tally.reset()
}

// Write reads the next bytes of the stream. It keeps nothing of p, takes all of it and never fails.
func (s *Sniffer) Write(p []byte) (int, error) {
	if s.family == prompt.None && len(p) > 0 {
		s.committed = true
	}
	s.write(p)
	return len(p), nil
}

// Close is for the end of the body: a last event whose blank line is missing is read too. (Clients drop such an
// event; what it says about tokens is true all the same.)
func (s *Sniffer) Close() error {
	if s.field != undecided || s.nprefix > 0 {
		s.line(nil)
	}
	if s.open {
		s.blank()
	}
	return nil
}

// Committed says that a token-bearing event was seen: from here on the answer belongs to the client.
// A stream that ends uncommitted and without a Failure is an answer too, an empty one.
func (s *Sniffer) Committed() bool { return s.committed }

// Failure returns the first error named inside the stream. If Committed is false, it came before any work was done
// and nothing will commit any more: the request can be tried elsewhere, or what was held is released as it is.
func (s *Sniffer) Failure() (Failure, bool) { return s.failure, s.failed }

// Usage returns what the stream has reported so far.
func (s *Sniffer) Usage() Usage { return s.tally.usage() }

// ResponseID returns the id of a responses stream, nil if none was seen. It is valid until Reset; an id of more
// than 128 bytes is cut.
func (s *Sniffer) ResponseID() []byte {
	if s.nid == 0 {
		return nil
	}
	return s.id[:s.nid]
}

// Finished says that the family's final event was seen: [DONE], message_stop, response.completed, .incomplete or .failed.
func (s *Sniffer) Finished() bool { return s.finished }

// Aborted says that the engine ended the answer because it was told to (finish_reason "abort").
func (s *Sniffer) Aborted() bool { return s.aborted }

// AtBoundary says that the bytes so far end between two events, so that an event of one's own may follow.
func (s *Sniffer) AtBoundary() bool { return !s.open && s.nprefix == 0 }

// Events returns how many events with data were seen.
func (s *Sniffer) Events() int { return s.seen }

func (s *Sniffer) commit() {
	if !s.failed {
		s.committed = true
	}
}

// event judges one event, whole in data.
func (s *Sniffer) event(name, data []byte) {
	if data[0] == '[' && string(bytes.TrimSpace(data)) == "[DONE]" {
		s.finished = true
		return
	}
	switch s.family {
	case prompt.Messages:
		s.messagesEvent(name, data)
	case prompt.Responses:
		s.responsesEvent(name, data)
	default:
		if s.committed && len(name) == 0 && plainChunk(data) {
			return
		}
		if string(name) == "error" {
			s.fail(data)
			return
		}
		s.chunk(data)
	}
}

// long judges the beginning of an over-long event. The data ends in the middle of a value, which no reader of a
// whole event takes for more than it is.
func (s *Sniffer) long(name, head []byte) {
	s.watch = false
	s.event(name, head)
	if s.family == prompt.Chat || s.family == prompt.Completions || s.family == prompt.None {
		s.watch = true
	}
}

// more looks through a further window of an over-long event for usage and, if the event is an error, its message.
func (s *Sniffer) more(window []byte) {
	if !s.watch {
		return
	}
	for rest := window; ; {
		at := usageObject(rest)
		if at == 0 {
			break
		}
		if skipValue(rest, at) > 0 {
			s.tally.readUsage(membersOf(rest, at))
		}
		rest = rest[at:]
	}
	if s.failed && s.failure.Message == "" {
		key := []byte(`"error":`)
		if i := bytes.Index(window, key); i >= 0 {
			if at := skipSpace(window, i+len(key)); skipValue(window, at) > 0 {
				s.failure = readFailure(window, at)
			}
		}
	}
}

// plainChunk says that a chat or completions chunk is one of the many that carry text and nothing else to know: it
// has a choice, no usage, no timings and is not aborted. It may say false too often, never true.
func plainChunk(data []byte) bool {
	return bytes.Contains(data, []byte(`ices":[{`)) &&
		usageObject(data) == 0 &&
		!bytes.Contains(data, []byte(`bort"`)) &&
		!bytes.Contains(data, []byte(`mings":`)) &&
		!bytes.HasPrefix(data, []byte(`{"error"`))
}

// chunk reads a chat or completions chunk.
func (s *Sniffer) chunk(data []byte) {
	produced, understood, flat := false, false, false
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		switch string(key) {
		case "choices":
			understood = true
			produced = s.choices(data, top.value) || produced
		case "usage":
			understood = true
			s.usage(&top)
		case "timings":
			if top.kind() == '{' {
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
	if produced || top.broken || !understood {
		s.commit()
	}
}

// choices says whether any choice has produced something, and notes an abort.
func (s *Sniffer) choices(data []byte, at int) (produced bool) {
	if data[at] != '[' {
		return false
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
				if string(choice.text()) == "abort" {
					s.aborted = true
				} else if !choice.empty() {
					produced = true
				}
			}
		}
		if choice.broken {
			return produced
		}
		at = skipSpace(data, choice.at+1)
		if at < len(data) && data[at] == ',' {
			at = skipSpace(data, at+1)
		}
	}
	return produced
}

func (s *Sniffer) messagesEvent(name, data []byte) {
	if len(name) == 0 {
		name = eventType(data)
	}
	switch string(name) {
	case "content_block_delta", "content_block_start", "content_block_stop":
		s.commit()
	case "ping":
	case "message_start":
		s.watch = true
		top := membersOf(data, 0)
		for key, ok := top.next(); ok; key, ok = top.next() {
			if string(key) == "message" && top.kind() == '{' {
				message := top.object()
				for key, ok := message.next(); ok; key, ok = message.next() {
					if string(key) == "usage" {
						s.usage(&message)
					}
				}
			}
		}
	case "message_delta":
		s.watch = true
		top := membersOf(data, 0)
		aborted := false
		for key, ok := top.next(); ok; key, ok = top.next() {
			switch string(key) {
			case "usage":
				s.usage(&top)
			case "delta":
				if top.kind() != '{' {
					continue
				}
				delta := top.object()
				for key, ok := delta.next(); ok; key, ok = delta.next() {
					aborted = aborted || string(key) == "stop_reason" && string(delta.text()) == "abort"
				}
			}
		}
		if aborted {
			s.aborted = true
		} else {
			s.commit()
		}
	case "message_stop":
		s.finished = true
	case "error":
		s.fail(data)
	default:
		s.commit()
	}
}

func (s *Sniffer) responsesEvent(name, data []byte) {
	if len(name) == 0 {
		name = eventType(data)
	}
	switch string(name) {
	case "response.created", "response.queued", "response.in_progress":
		if s.nid == 0 {
			s.response(data)
		}
	case "response.completed", "response.incomplete":
		s.watch, s.finished = true, true
		s.response(data)
		s.commit()
	case "response.failed":
		s.watch, s.finished = true, true
		s.response(data)
		s.fail(data)
	case "error":
		s.fail(data)
	default:
		s.commit()
	}
}

// response reads the response object of an event.
func (s *Sniffer) response(data []byte) {
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		if string(key) != "response" || top.kind() != '{' {
			continue
		}
		response := top.object()
		for key, ok := response.next(); ok; key, ok = response.next() {
			switch string(key) {
			case "id":
				if id := response.text(); s.nid == 0 && id != nil {
					s.nid = copy(s.id[:], id)
				}
			case "usage":
				s.usage(&response)
			}
		}
	}
}

// usage reads the current value if it is a usage object that is all there.
func (s *Sniffer) usage(m *members) {
	if m.kind() == '{' && skipValue(m.json, m.value) > 0 {
		s.tally.readUsage(m.object())
	}
}

// eventType returns the data's own type, for events without an event line.
func eventType(data []byte) []byte {
	top := membersOf(data, 0)
	for key, ok := top.next(); ok; key, ok = top.next() {
		if string(key) == "type" && top.kind() == '"' {
			return top.text()
		}
	}
	return nil
}
