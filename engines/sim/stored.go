package sim

import "sync"

// stored keeps what previous_response_id refers to: the conversation of a response, its answer
// included. The oldest are dropped when it grows beyond its bounds; their ids are then unknown.
type stored struct {
	mu    sync.Mutex
	text  map[string][]byte
	order []string // oldest first
	bytes int
}

const (
	maxStored      = 4096
	maxStoredBytes = 64 << 20
)

func (s *stored) put(id string, conversation []byte, a *answer) {
	text := append([]byte(nil), conversation...)
	if a.call != nil {
		text = append(append(append(append(text, markCall), a.call.name...), 0), a.call.args...)
	} else {
		text = a.text(text, 0, a.tokens)
	}
	r := renderer{buf: text}
	r.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == nil {
		s.text = map[string][]byte{}
	}
	s.text[id] = r.buf
	s.order = append(s.order, id)
	for s.bytes += len(r.buf); len(s.order) > maxStored || s.bytes > maxStoredBytes; s.order = s.order[1:] {
		s.bytes -= len(s.text[s.order[0]])
		delete(s.text, s.order[0])
	}
}

func (s *stored) get(id string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.text[id]
	return text, ok
}
