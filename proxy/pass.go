package proxy

import (
	"io"
	"strconv"
	"sync"
)

// passing are the buffers that streams pass through. An idle stream holds none.
var passing = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}

// SupportsBodyWriteTo tells the server that the relay may write the body itself,
// which it does to clients that it can write to directly and that take chunks.
func (l *relay) SupportsBodyWriteTo() bool {
	return !l.framed && l.r.conn != nil && l.r.conn.direct != nil && l.r.ctx.Request.Header.IsHTTP11()
}

// WriteTo passes the whole answer on. The first bytes go to w and with them the
// response's head; what follows is framed here and goes straight to the
// connection, without a copy into the server's buffers, each read of the engine's
// connection as one chunk in one system call. The server adds the last chunk.
func (l *relay) WriteTo(w io.Writer) (int64, error) {
	began := l.r.sent
	for l.end == nil || len(l.held) > 0 {
		if err := l.pass(&w); err != nil {
			return l.r.sent - began, err
		}
	}
	buf := passing.Get().(*[]byte)
	defer passing.Put(buf)
	for {
		n, err := l.ending(*buf)
		if n > 0 {
			err = l.emit(&w, (*buf)[:n])
			l.r.sent -= int64(n) // counted twice
		}
		if err == io.EOF {
			return l.r.sent - began, nil
		}
		if err != nil {
			return l.r.sent - began, err
		}
	}
}

// pass passes on what was held, or what one read gives.
func (l *relay) pass(w *io.Writer) error {
	if len(l.held) > 0 {
		held := l.held
		l.held = nil
		return l.emit(w, held)
	}
	buf, n, err := l.r.x.ReadPooled(&passing)
	var p []byte
	if buf != nil {
		defer passing.Put(buf)
		p = (*buf)[:n]
	}
	l.passed(p, err)
	if l.filter == nil {
		return l.emit(w, p)
	}
	out := passing.Get().(*[]byte)
	defer passing.Put(out)
	kept := l.filter.Filter((*out)[:0], p)
	if l.end != nil {
		kept = l.filter.Flush(kept)
	}
	return l.emit(w, kept)
}

// emit sends p as a chunk.
func (l *relay) emit(w *io.Writer, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	l.extendDeadline()
	l.r.sent += int64(len(p))
	if *w != nil {
		_, err := (*w).Write(p)
		*w = nil
		return err
	}
	head := append(strconv.AppendInt(l.size[:0], int64(len(p)), 16), "\r\n"...)
	l.pieces[0], l.pieces[1] = p, crlf
	err := l.r.conn.direct.WriteAll(head, l.pieces[:])
	l.pieces[0] = nil
	return err
}

var crlf = []byte("\r\n")
