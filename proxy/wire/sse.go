package wire

import "bytes"

const (
	// sniffLimit is how much of one event's data is kept for looking at.
	sniffLimit = 16 << 10
	// sniffOverlap is how much of an over-long event's window stays when the window moves on, so that an object of up
	// to that size is seen whole at least once. A usage object has a few hundred bytes.
	sniffOverlap = 2 << 10
	nameLimit    = 64
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// lineEnds finds line ends in one slice, at LF, CR or CRLF, each byte being looked at a bounded number of times even
// where a stream has only CRs.
type lineEnds struct{ lf int }

func (l *lineEnds) next(p []byte, from int) int {
	if l.lf < from {
		if n := bytes.IndexByte(p[from:], '\n'); n >= 0 {
			l.lf = from + n
		} else {
			l.lf = len(p)
		}
	}
	if n := bytes.IndexByte(p[from:l.lf], '\r'); n >= 0 {
		return from + n
	}
	return l.lf
}

// field says what the current line is, as far as it is known.
//
//	undecided --"data:"--> spaceOrData --> inData
//	    |-----"event:"---> spaceOrName --> inName
//	    '-----any other--> ignored           (comments, id, retry, unknown)
//
// All go back to undecided at the line's end.
type field uint8

const (
	undecided field = iota
	spaceOrData
	inData
	spaceOrName
	inName
	ignored
)

// events cuts a stream of server-sent events, fed in pieces of any size, into events. It implements the
// format's grammar: LF, CR and CRLF, one optional space behind the colon, several data lines, comments, a byte order mark.
//
// An event's data is handed out when its blank line comes: in place where it lies whole in one piece, else from a
// buffer of at most sniffLimit bytes. Of a longer event, long is called once with the first sniffLimit bytes, then more
// with overlapping windows of the rest; all of that depends on the bytes alone, never on how they were cut.
type events struct {
	field   field
	skipLF  bool // the last byte was a CR that ended a line
	later   bool // the first line has ended: no more byte order mark
	open    bool // something of an event (a comment, too) has come since the last blank line
	hasData bool
	over    bool // the event is longer than sniffLimit: long was called
	prefix  [8]byte
	nprefix int
	name    [nameLimit]byte
	nname   int
	view    []byte // the event's data, still lying in the piece being written; else it is in data
	data    []byte
	seen    int // events with data so far
}

// write and what it calls are the Sniffer's own methods rather than a reader with a callback: calls stay direct, and the
// views into the written piece stay on the stack.
func (s *Sniffer) write(p []byte) {
	e := &s.events
	lines := lineEnds{-1}
	for pos := 0; pos < len(p); {
		if e.skipLF {
			e.skipLF = false
			if p[pos] == '\n' {
				pos++
				continue
			}
		}
		end := lines.next(p, pos)
		if end == len(p) {
			s.part(p[pos:])
			break
		}
		s.line(p[pos:end])
		if p[end] == '\r' {
			if end+1 == len(p) {
				e.skipLF = true
			} else if p[end+1] == '\n' {
				end++
			}
		}
		pos = end + 1
	}
	if e.view != nil {
		e.data = append(e.data[:0], e.view...)
		e.view = nil
	}
}

// line takes the rest of a line, which ends here.
func (s *Sniffer) line(p []byte) {
	e := &s.events
	if e.field == undecided && e.nprefix == 0 {
		if !e.later {
			p = bytes.TrimPrefix(p, byteOrderMark)
		}
		switch {
		case len(p) == 0:
			s.blank()
		case len(p) >= 5 && string(p[:5]) == "data:":
			p = p[5:]
			if len(p) > 0 && p[0] == ' ' {
				p = p[1:]
			}
			e.open = true
			if !e.hasData && len(p) <= sniffLimit {
				e.hasData, e.view = true, p
			} else {
				s.startData()
				s.addData(p)
			}
		case len(p) >= 6 && string(p[:6]) == "event:":
			p = p[6:]
			if len(p) > 0 && p[0] == ' ' {
				p = p[1:]
			}
			e.open = true
			e.nname = copy(e.name[:], p)
		default:
			s.part(p)
			s.endLine()
		}
	} else {
		s.part(p)
		s.endLine()
	}
	e.field, e.nprefix, e.later = undecided, 0, true
}

// part takes some bytes of a line whose end has not come.
func (s *Sniffer) part(p []byte) {
	e := &s.events
	for len(p) > 0 {
		switch e.field {
		case undecided:
			c := p[0]
			p = p[1:]
			switch {
			case c == ':':
				s.decide()
			case e.nprefix == len(e.prefix):
				e.field, e.open = ignored, true
			default:
				e.prefix[e.nprefix] = c
				e.nprefix++
			}
		case spaceOrData, spaceOrName:
			if p[0] == ' ' {
				p = p[1:]
			}
			e.field++
		case inData:
			s.addData(p)
			return
		case inName:
			e.nname += copy(e.name[e.nname:], p)
			return
		case ignored:
			return
		}
	}
}

// decide looks at a field's name, which is complete.
func (s *Sniffer) decide() {
	e := &s.events
	name := e.prefix[:e.nprefix]
	if !e.later {
		name = bytes.TrimPrefix(name, byteOrderMark)
	}
	switch string(name) {
	case "data":
		e.field = spaceOrData
		s.startData()
	case "event":
		e.field, e.nname = spaceOrName, 0
	default:
		e.field = ignored
	}
	e.open = true
}

// endLine ends a line that was fed to part. One without a colon is a field with an empty value; one that holds
// nothing but the byte order mark is blank.
func (s *Sniffer) endLine() {
	e := &s.events
	if e.field != undecided {
		return
	}
	if !e.later && bytes.Equal(e.prefix[:e.nprefix], byteOrderMark) {
		s.blank()
		return
	}
	s.decide()
}

// startData begins a data line.
func (s *Sniffer) startData() {
	e := &s.events
	if !e.hasData {
		e.hasData = true
		e.data = e.data[:0]
		return
	}
	if e.view != nil {
		e.data = append(e.data[:0], e.view...)
		e.view = nil
	}
	s.addData([]byte{'\n'})
}

func (s *Sniffer) addData(p []byte) {
	e := &s.events
	for len(p) > 0 {
		if len(e.data) == sniffLimit {
			s.full()
		}
		n := min(sniffLimit-len(e.data), len(p))
		e.data = append(e.data, p[:n]...)
		p = p[n:]
	}
}

// full makes room in a full buffer: at first by judging the event's beginning, then by moving the window on.
func (s *Sniffer) full() {
	e := &s.events
	if !e.over {
		e.over = true
		s.long(e.name[:e.nname], e.data)
	} else {
		s.more(e.data)
	}
	kept := copy(e.data, e.data[len(e.data)-sniffOverlap:])
	e.data = e.data[:kept]
}

// blank ends an event. One without data is none.
func (s *Sniffer) blank() {
	e := &s.events
	data := e.data
	if e.view != nil {
		data = e.view
	}
	switch {
	case e.over:
		e.seen++
		s.more(data)
	case e.hasData && len(data) > 0:
		e.seen++
		s.event(e.name[:e.nname], data)
	}
	e.open, e.hasData, e.over, e.view, e.nname = false, false, false, nil, 0
	e.data = e.data[:0]
}
