package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Errors that end an exchange before a complete answer. Each is wrapped with
// what was tried and to whom.
var (
	// ErrUnreachable: no connection; the engine never saw the request.
	ErrUnreachable = errors.New("engine unreachable")
	// ErrBroken: the connection ended before the first byte of an answer. The
	// engine may have seen the request.
	ErrBroken = errors.New("engine closed the connection without an answer")
	// ErrTruncated: the answer began and did not end as its framing promised.
	ErrTruncated = errors.New("engine cut its answer short")
	// ErrMalformed: the answer is not HTTP/1.
	ErrMalformed = errors.New("engine's answer is not valid HTTP")
	// ErrCanceled: Cancel was called.
	ErrCanceled = errors.New("exchange canceled")
	// ErrTimeout: a configured limit of this exchange passed; the message names
	// which one and its value.
	ErrTimeout = errors.New("time limit passed")
)

// Limits are the time limits of one exchange; 0 is no limit.
type Limits struct {
	// Write bounds sending the request.
	Write time.Duration
	// FirstByte bounds the wait from the request's end to the answer's first
	// byte. A prefill of 900k tokens is silent for minutes: leave it 0 unless
	// the engine is known to answer sooner.
	FirstByte time.Duration
	// BetweenBytes bounds the silence inside an answer.
	BetweenBytes time.Duration
}

// Exchange is one HTTP/1.1 round trip with an engine that can be canceled from
// any goroutine at any moment: while dialing, sending, waiting for the answer or
// reading it. Canceling closes the connection at once, which is how vLLM and
// llama.cpp are told to stop.
//
//	idle ──Do──▶ dialing ─▶ sending ─▶ waiting ─▶ answering ──Close──▶ idle
//	               └───────────┴── Cancel ┴───────────┘
//
// One goroutine calls Do, Read and Close; Cancel may come from any. The zero
// value is ready, and a closed Exchange may be used again.
type Exchange struct {
	Answer Answer // valid after Do returned nil
	// Reused tells that the answer came over a kept connection.
	Reused bool
	// Resent tells that a kept connection was found dead and the request sent once
	// more: the engine may have seen it twice.
	Resent bool

	pool   *Pool
	limits Limits
	conn   *conn
	body   bodyReader

	mu       sync.Mutex // guards the handle that Cancel reaches for
	live     net.Conn
	stopDial context.CancelFunc
	canceled bool
}

// Do sends head and the body's pieces and reads the answer's head. The request
// goes over a kept connection if there is one; if that one turns out to be dead
// before any byte of an answer, it is sent once more over a fresh one: engines
// close idle connections without notice. Head ends with the empty line.
// noBody tells that the answer has none whatever its head says (HEAD).
func (x *Exchange) Do(p *Pool, head []byte, pieces [][]byte, noBody bool, limits Limits) error {
	x.pool, x.limits, x.Resent = p, limits, false
	c := p.rested()
	if c != nil {
		err := x.try(c, head, pieces, noBody)
		if err == nil || !errors.Is(err, ErrBroken) {
			return err
		}
		p.foundStale()
		x.Resent = true
	}
	c, err := x.dial(p)
	if err != nil {
		return err
	}
	return x.try(c, head, pieces, noBody)
}

func (x *Exchange) dial(p *Pool) (*conn, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	x.mu.Lock()
	if x.canceled {
		x.mu.Unlock()
		return nil, ErrCanceled
	}
	x.stopDial = stop
	x.mu.Unlock()
	c, err := p.dial(ctx)
	x.mu.Lock()
	x.stopDial = nil
	canceled := x.canceled
	x.mu.Unlock()
	if canceled {
		if c != nil {
			p.discard(c)
		}
		return nil, ErrCanceled
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return c, nil
}

// try runs the round trip over one connection, up to the answer's head.
func (x *Exchange) try(c *conn, head []byte, pieces [][]byte, noBody bool) error {
	x.mu.Lock()
	if x.canceled {
		x.mu.Unlock()
		x.pool.discard(c)
		return ErrCanceled
	}
	x.live = c.Conn
	x.mu.Unlock()
	x.conn = c
	x.Reused = c.reused

	if x.limits.Write > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(x.limits.Write))
	}
	writeErr := send(c.Conn, head, pieces)
	if writeErr != nil {
		// An engine that refuses early (413, 503) answers before it has read the
		// body and closes; its answer may be there to read.
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	} else if x.limits.FirstByte > 0 {
		_ = c.SetReadDeadline(time.Now().Add(x.limits.FirstByte))
	}
	n, err := x.body.readHead(c.Conn, &x.Answer, noBody)
	if err == nil {
		if x.limits.FirstByte > 0 || writeErr != nil {
			_ = c.SetReadDeadline(time.Time{})
		}
		if writeErr != nil {
			x.body.keepAlive = false
		}
		return nil
	}
	x.Close()
	x.mu.Lock()
	canceled := x.canceled
	x.mu.Unlock()
	address := x.pool.target.Address
	switch {
	case canceled:
		return ErrCanceled
	case writeErr != nil && isTimeout(writeErr):
		return fmt.Errorf("sending to %s: write limit of %v: %w", address, x.limits.Write, ErrTimeout)
	case writeErr != nil:
		return fmt.Errorf("sending to %s: %w: %w", address, ErrBroken, writeErr)
	case isTimeout(err):
		return fmt.Errorf("waiting for %s: first-byte limit of %v: %w", address, x.limits.FirstByte, ErrTimeout)
	case errors.Is(err, ErrMalformed):
		return fmt.Errorf("reading from %s: %w", address, err)
	case n == 0:
		return fmt.Errorf("waiting for %s: %w: %w", address, ErrBroken, err)
	default:
		return fmt.Errorf("reading from %s: %w: %w", address, ErrTruncated, err)
	}
}

// send writes the head and the pieces in as few system calls as the connection
// allows (one writev for TCP), without copying the body.
func send(c net.Conn, head []byte, pieces [][]byte) error {
	if len(pieces) == 0 {
		_, err := c.Write(head)
		return err
	}
	if s, ok := c.(interface {
		WriteAll(head []byte, pieces [][]byte) error
	}); ok {
		return s.WriteAll(head, pieces)
	}
	bufs := append(net.Buffers{head}, pieces...)
	_, err := bufs.WriteTo(c)
	return err
}

// Read reads the answer's body, freed from its transfer coding, straight from
// the connection into p: no buffer in between, so what the engine has sent is
// returned at once. It returns io.EOF at the end that the framing promised and
// ErrTruncated, ErrCanceled or ErrTimeout otherwise. len(p) must be at least 64.
func (x *Exchange) Read(p []byte) (int, error) {
	if x.conn == nil {
		return 0, ErrCanceled
	}
	for {
		if x.limits.BetweenBytes > 0 {
			_ = x.conn.SetReadDeadline(time.Now().Add(x.limits.BetweenBytes))
		}
		n, err := x.body.read(x.conn.Conn, p)
		if n == 0 && err == nil {
			continue
		}
		if err == nil || err == io.EOF {
			return n, err
		}
		return n, x.ended(err)
	}
}

// ReadPooled is Read into a buffer of the pool's (of *[]byte, each of 64 bytes or more), which the
// caller puts back unless it is nil. While nothing comes it holds none: a
// stream that lies idle costs no buffer.
func (x *Exchange) ReadPooled(pool *sync.Pool) (*[]byte, int, error) {
	c := x.conn
	if c == nil {
		return nil, 0, ErrCanceled
	}
	direct, ok := c.Conn.(pooledReader)
	if !ok || len(x.body.pending) > 0 {
		buf := pool.Get().(*[]byte)
		n, err := x.Read(*buf)
		return buf, n, err
	}
	for !x.body.ended {
		if x.limits.BetweenBytes > 0 {
			_ = c.SetReadDeadline(time.Now().Add(x.limits.BetweenBytes))
		}
		if x.body.headDone {
			x.body.release()
		}
		buf, n, err := direct.ReadPooled(pool)
		if err == nil {
			n, err = x.body.unframe((*buf)[:n])
		} else if err = x.body.closed(err); err == io.EOF {
			return nil, 0, err
		}
		if err != nil {
			return buf, n, x.ended(err)
		}
		if n > 0 {
			return buf, n, nil
		}
		pool.Put(buf)
	}
	return nil, 0, io.EOF
}

// pooledReader is what Direct makes of a connection where it can.
type pooledReader interface {
	ReadPooled(*sync.Pool) (*[]byte, int, error)
}

// ended says why the answer could not be read on.
func (x *Exchange) ended(err error) error {
	x.mu.Lock()
	canceled := x.canceled
	x.mu.Unlock()
	switch {
	case canceled:
		return ErrCanceled
	case isTimeout(err):
		return fmt.Errorf("reading from %s: limit of %v between bytes: %w", x.pool.target.Address, x.limits.BetweenBytes, ErrTimeout)
	case errors.Is(err, ErrMalformed):
		return fmt.Errorf("reading from %s: %w", x.pool.target.Address, err)
	default:
		return fmt.Errorf("reading from %s: %w: %w", x.pool.target.Address, ErrTruncated, err)
	}
}

// Buffered tells that the next Read returns without touching the connection.
func (x *Exchange) Buffered() bool { return x.body.buffered() }

// DropHead says that the Answer's slices are needed no more, so that a stream
// that lies idle holds no buffer. Status and lengths stay.
func (x *Exchange) DropHead() {
	x.body.headDone = true
	x.Answer.Header, x.Answer.ContentType, x.Answer.ContentEncoding = nil, nil, nil
	if len(x.body.pending) == 0 {
		x.body.release()
	}
}

// Cancel ends the exchange from any goroutine: the connection is closed, and a
// Do or Read in progress returns ErrCanceled. A canceled exchange stays canceled
// until Reset.
func (x *Exchange) Cancel() {
	x.mu.Lock()
	x.canceled = true
	live, stop := x.live, x.stopDial
	x.live = nil
	x.mu.Unlock()
	if stop != nil {
		stop()
	}
	if live != nil {
		_ = live.Close()
	}
}

// Canceled tells whether Cancel was called since the last Reset.
func (x *Exchange) Canceled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.canceled
}

// Close ends the exchange. The connection is kept for the next one if the
// answer was read to its end and the engine wants to go on; else it is closed,
// which tells the engine to stop. It may be called more than once.
func (x *Exchange) Close() {
	// The handle goes first: a late Cancel must never hit a connection that
	// belongs to somebody else by then.
	x.mu.Lock()
	x.live = nil
	canceled := x.canceled
	x.mu.Unlock()
	c := x.conn
	if c == nil {
		return
	}
	x.conn = nil
	reusable := x.body.finished() && x.body.keepAlive && !canceled
	x.body.release()
	if reusable {
		if x.limits.BetweenBytes > 0 {
			_ = c.SetReadDeadline(time.Time{})
		}
		x.pool.rest(c)
		return
	}
	x.pool.discard(c)
}

// Reset makes a closed exchange ready for another Do, a past Cancel forgotten.
func (x *Exchange) Reset() {
	x.Close()
	x.mu.Lock()
	x.canceled = false
	x.mu.Unlock()
	x.Reused = false
	x.pool = nil
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// IsRefused tells that an engine's host is there but nobody listens.
func IsRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
