package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// caller is one client connection. It spends as little as it can: on two cores its work shows in everybody's latency.
type caller struct {
	net.Conn
	in       *bufio.Reader
	left     int64 // of the body, or of its present chunk
	chunked  bool
	ended    bool
	reusable bool
}

// answerLimit bounds one answer in time, so that a peer that hangs costs an error and not the run.
const answerLimit = 30 * time.Second

func call(address string) (*caller, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &caller{Conn: c, in: bufio.NewReaderSize(c, 4<<10)}, nil
}

// answered is what one call brought.
type answered struct {
	status int
	first  time.Time // when the body began
	engine int       // which fake answered, from 0; -1 if the answer does not say
	done   bool      // the stream said [DONE]
	carry  []byte    // the last bytes seen, in case the mark is cut in two
}

// ask sends one request and reads its answer to the end.
func (c *caller) ask(head, text, tail []byte) (answered, error) {
	a := answered{engine: -1}
	_ = c.SetDeadline(time.Now().Add(answerLimit))
	request := net.Buffers{head, text, tail}
	_, sendErr := request.WriteTo(c.Conn) // a refusal may be there to read all the same
	var err error
	if a.status, err = c.readHead(); err != nil {
		return a, errors.Join(sendErr, err)
	}
	for {
		p, err := c.readPiece()
		if a.first.IsZero() {
			a.first = time.Now()
		}
		if err == io.EOF {
			return a, sendErr
		}
		if err != nil {
			return a, err
		}
		a.see(p)
	}
}

// see looks for the marks that the fakes leave. The engine's stands at the beginning of a body, so it comes whole; the
// end's may be cut.
func (a *answered) see(p []byte) {
	if a.engine < 0 {
		if i := bytes.Index(p, []byte(engineMark)); i >= 0 {
			a.engine = 0
			for _, d := range p[i+len(engineMark):] {
				if d < '0' || d > '9' {
					break
				}
				a.engine = a.engine*10 + int(d-'0')
			}
		}
	}
	const end = "[DONE]"
	if a.done = a.done || bytes.Contains(p, []byte(end)); a.done {
		return
	}
	const keep = len(end) - 1
	a.carry = append(a.carry, p[:min(len(p), keep)]...)
	a.done = bytes.Contains(a.carry, []byte(end))
	if len(p) > keep {
		a.carry = append(a.carry[:0], p[len(p)-keep:]...)
	} else if len(a.carry) > keep {
		a.carry = append(a.carry[:0], a.carry[len(a.carry)-keep:]...)
	}
}

// readHead reads the answer's head and gives its status.
func (c *caller) readHead() (status int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("status line %q", line)
	}
	status, _ = strconv.Atoi(string(line[9:12]))
	c.left, c.chunked, c.ended, c.reusable = -1, false, false, true
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return status, err
		}
		name, value, found := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if !found {
			break
		}
		value = bytes.TrimSpace(value)
		switch len(name) {
		case len("content-length"):
			if bytes.EqualFold(name, []byte("content-length")) {
				c.left, _ = strconv.ParseInt(string(value), 10, 64)
			}
		case len("transfer-encoding"):
			c.chunked = c.chunked || bytes.EqualFold(name, []byte("transfer-encoding"))
		case len("connection"):
			c.reusable = c.reusable && !bytes.EqualFold(value, []byte("close"))
		}
	}
	if c.chunked {
		c.left = 0
	} else if c.left < 0 {
		c.reusable = false
	}
	return status, nil
}

// readPiece gives what has come of the body, valid until the next call; io.EOF at its proper end.
func (c *caller) readPiece() ([]byte, error) {
	if c.ended || (!c.chunked && c.left == 0) {
		c.ended = true
		return nil, io.EOF
	}
	if c.chunked && c.left == 0 {
		if err := c.nextChunk(); err != nil {
			return nil, err
		}
	}
	if _, err := c.in.Peek(1); err != nil {
		if err == io.EOF && (c.chunked || c.left > 0) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	n := c.in.Buffered()
	if c.left >= 0 {
		n = int(min(int64(n), c.left))
		c.left -= int64(n)
	}
	p, _ := c.in.Peek(n)
	_, _ = c.in.Discard(n)
	return p, nil
}

// nextChunk reads the line that begins a chunk; io.EOF after the last one.
func (c *caller) nextChunk() error {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
		digits, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(";"))
		if len(digits) == 0 {
			if c.ended {
				return io.EOF // the empty line behind the last chunk
			}
			continue // the line break behind a chunk
		}
		if c.ended {
			continue // a trailer
		}
		if c.left, err = strconv.ParseInt(string(digits), 16, 64); err != nil {
			return fmt.Errorf("chunk size %q", digits)
		}
		if c.left > 0 {
			return nil
		}
		c.ended = true
	}
}
