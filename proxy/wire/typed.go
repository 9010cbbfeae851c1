package wire

// Messages and responses streams have typed events: what one means is in its name.

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
