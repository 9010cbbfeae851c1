package engines

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// maxAnswerHead bounds an answer's status line and headers.
const maxAnswerHead = 64 << 10

// Answer is the head of an engine's answer. Its slices alias a buffer that
// belongs to the exchange: they are valid until DropHead or Close of the exchange.
type Answer struct {
	Status          int
	Header          []byte // the raw header lines, each ending in a line break
	ContentType     []byte
	ContentEncoding []byte
	ContentLength   int64 // -1 when the head does not say
	Chunked         bool
}

// EventStream tells that the answer is a stream of server-sent events.
func (a *Answer) EventStream() bool {
	const want = "text/event-stream"
	return len(a.ContentType) >= len(want) && bytes.EqualFold(a.ContentType[:len(want)], []byte(want))
}

// Identity tells that the body is not compressed, so that it can be looked at.
func (a *Answer) Identity() bool {
	return len(a.ContentEncoding) == 0 || bytes.EqualFold(a.ContentEncoding, []byte("identity"))
}

// EachHeader calls f for every header line, in the engine's order.
func (a *Answer) EachHeader(f func(name, value []byte)) {
	rest := a.Header
	for len(rest) > 0 {
		var line []byte
		line, rest = cutLine(rest)
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			continue
		}
		f(line[:colon], bytes.TrimSpace(line[colon+1:]))
	}
}

// framing says how an answer's body ends.
type framing uint8

const (
	framedNone framing = iota
	framedLength
	framedChunked
	framedClose
)

// bodyReader reads an answer's head and then takes its framing off. Bytes that
// came with the head are kept in a pooled buffer until read; after that the
// connection is read straight into the caller's buffer.
type bodyReader struct {
	buf       *[]byte // pooled; holds head and first body bytes
	pending   []byte  // unread part of buf
	framing   framing
	remaining int64 // of a body framed by length
	chunks    dechunker
	keepAlive bool
	ended     bool
	headDone  bool // nobody looks at the Answer's slices any more
	surplus   bool // bytes behind the answer's end: the connection is not clean
}

// heads pools the buffers that answers' heads are read into. A pool shared by
// all exchanges keeps idle streams free of it.
var heads = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}

// readHead reads up to the empty line. n is the number of bytes that came.
func (b *bodyReader) readHead(c net.Conn, a *Answer, noBody bool) (n int, err error) {
	b.buf = heads.Get().(*[]byte)
	buf := *b.buf
	have := 0
	from := 0
	for {
		if have == len(buf) {
			if len(buf) >= maxAnswerHead {
				return have, fmt.Errorf("%w: more than %d bytes of headers", ErrMalformed, maxAnswerHead)
			}
			grown := make([]byte, 2*len(buf))
			copy(grown, buf)
			buf = grown
			*b.buf = grown
		}
		m, err := c.Read(buf[have:])
		have += m
		for {
			end := headEnd(buf[from:have])
			if end < 0 {
				break
			}
			status, perr := b.parseHead(buf[from:from+end], a, noBody)
			if perr != nil {
				return have, perr
			}
			from += end
			if status >= 200 {
				b.pending = buf[from:have]
				return have, nil
			}
			// 100 Continue, 103 Early Hints: the real head follows.
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return have, err
		}
	}
}

// headEnd is the length of the head in b including its empty line, or -1.
func headEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return -1
		}
		i += j + 1
		if i < len(b) && b[i] == '\n' {
			return i + 1
		}
		if i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n' {
			return i + 2
		}
	}
}

// cutLine takes the first line off b, without its line break.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	line, rest = b[:i], b[i+1:]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return line, rest
}

func (b *bodyReader) parseHead(head []byte, a *Answer, noBody bool) (status int, err error) {
	line, rest := cutLine(head)
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return 0, fmt.Errorf("%w: status line %.80q", ErrMalformed, line)
	}
	status, err = strconv.Atoi(string(line[9:12]))
	if err != nil || status < 100 || (len(line) > 12 && line[12] != ' ') {
		return 0, fmt.Errorf("%w: status line %.80q", ErrMalformed, line)
	}
	*a = Answer{Status: status, ContentLength: -1, Header: rest}
	b.keepAlive = line[7] != '0'
	bad := false
	a.EachHeader(func(name, value []byte) {
		switch {
		case equalFold(name, "content-length"):
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 || (a.ContentLength >= 0 && a.ContentLength != n) {
				bad = true
				return
			}
			a.ContentLength = n
		case equalFold(name, "transfer-encoding"):
			if !equalFold(value, "chunked") {
				bad = true
			}
			a.Chunked = true
		case equalFold(name, "connection"):
			if hasToken(value, "close") {
				b.keepAlive = false
			} else if hasToken(value, "keep-alive") {
				b.keepAlive = true
			}
		case equalFold(name, "content-type"):
			a.ContentType = value
		case equalFold(name, "content-encoding"):
			a.ContentEncoding = value
		}
	})
	if status == 101 {
		return 0, fmt.Errorf("%w: it switched protocols unasked", ErrMalformed)
	}
	if bad {
		return 0, fmt.Errorf("%w: unusable content-length or transfer-encoding", ErrMalformed)
	}
	b.ended, b.surplus, b.headDone, b.remaining = false, false, false, 0
	b.chunks = dechunker{}
	switch {
	case noBody || status == 204 || status == 304 || status < 200:
		b.framing, b.ended = framedNone, true
	case a.Chunked:
		// RFC 9112 §6.3: chunked wins over a content-length beside it.
		b.framing, a.ContentLength = framedChunked, -1
	case a.ContentLength >= 0:
		b.framing, b.remaining = framedLength, a.ContentLength
		b.ended = a.ContentLength == 0
	default:
		b.framing, b.keepAlive = framedClose, false
	}
	return status, nil
}

func (b *bodyReader) buffered() bool { return len(b.pending) > 0 || b.ended }

func (b *bodyReader) finished() bool { return b.ended && !b.surplus && len(b.pending) == 0 }

func (b *bodyReader) release() {
	if b.buf != nil {
		if len(*b.buf) <= 16<<10 {
			heads.Put(b.buf)
		}
		b.buf, b.pending = nil, nil
	}
}

// read returns body bytes, or (0, nil) when only framing came.
func (b *bodyReader) read(c net.Conn, p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	var raw []byte
	if len(b.pending) > 0 {
		n := copy(p, b.pending)
		raw, b.pending = p[:n], b.pending[n:]
	} else {
		if b.headDone {
			b.release()
		}
		n, err := c.Read(p)
		if n == 0 && err != nil {
			return 0, b.closed(err)
		}
		raw = p[:n]
	}
	return b.unframe(raw)
}

// closed tells what the connection's end means to the body.
func (b *bodyReader) closed(err error) error {
	if err != io.EOF {
		return err
	}
	if b.framing == framedClose {
		b.ended = true
		return io.EOF
	}
	return io.ErrUnexpectedEOF
}

// unframe takes the framing off raw, in place, and returns how many bytes of the
// body remain.
func (b *bodyReader) unframe(raw []byte) (int, error) {
	switch b.framing {
	case framedLength:
		n := len(raw)
		if int64(n) >= b.remaining {
			b.surplus = int64(n) > b.remaining
			n = int(b.remaining)
			b.ended = true
		}
		b.remaining -= int64(n)
		return n, nil
	case framedChunked:
		n, used, err := b.chunks.decode(raw)
		if err != nil {
			return n, err
		}
		if b.chunks.done() {
			b.ended = true
			b.surplus = used < len(raw)
		}
		return n, nil
	default:
		return len(raw), nil
	}
}

// equalFold compares ASCII letters without case; lower is lower case already.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := 0; i < len(b); i++ {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// hasToken looks for a token in a comma-separated header value.
func hasToken(value []byte, lower string) bool {
	for len(value) > 0 {
		part := value
		if i := bytes.IndexByte(value, ','); i >= 0 {
			part, value = value[:i], value[i+1:]
		} else {
			value = nil
		}
		if equalFold(bytes.TrimSpace(part), lower) {
			return true
		}
	}
	return false
}
