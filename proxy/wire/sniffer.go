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
	plain     skeleton
	id        [128]byte
	nid       int
}

// Reset makes the Sniffer ready for a new stream of family f. It keeps its buffers.
func (s *Sniffer) Reset(f prompt.Family) {
	*s = Sniffer{family: f, events: events{data: s.events.data[:0]}, plain: s.plain}
	s.plain.reset()
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
		if s.committed && len(name) == 0 {
			if s.plain.fits(data) {
				return
			}
			if plainChunk(data) {
				s.plain.take(data)
				return
			}
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

// usage reads the current value if it is a usage object that is all there.
func (s *Sniffer) usage(m *members) {
	if m.kind() == '{' && m.whole() {
		s.tally.readUsage(m.object())
	}
}
