package proxy

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/warmring/warmring/engines"
)

// listener hands out connections whose clients' closing is watched, and not more
// than it has places for: those beyond wait in the kernel's queue.
type listener struct {
	net.Listener
	hangups *hangups
	places  chan struct{} // holds one for each open connection
	closed  chan struct{}
	once    sync.Once
}

func newListener(ln net.Listener, h *hangups, places int) *listener {
	return &listener{Listener: ln, hangups: h, places: make(chan struct{}, places), closed: make(chan struct{})}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) leave() { <-l.places }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			// Out of descriptors, or a client that left while it was being
			// accepted, must not end the server.
			var errno syscall.Errno
			if errors.As(err, &errno) && (errno == syscall.EMFILE || errno == syscall.ENFILE || errno == syscall.ECONNABORTED) {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			l.leave()
			return nil, err
		}
		tuneAccepted(c)
		cc := &clientConn{Conn: engines.Direct(c), hangups: l.hangups, leave: l.leave}
		cc.direct, _ = cc.Conn.(directConn)
		l.hangups.watch(cc)
		return cc, nil
	}
}

// clientConn is a client's connection that knows when its client has gone and
// tells the request under way.
type clientConn struct {
	net.Conn
	hangups *hangups
	token   uint64
	first   firstLine
	direct  directConn // nil: a connection of another kind than TCP
	ahead   *[]byte    // the beginning of a request, from aheads; nil when it has been handed out
	rest    []byte     // what is left of it
	leave   func()     // gives its place back; called once
	closed  sync.Once

	mu     sync.Mutex
	gone   bool
	onGone func()
}

// firstLine is the beginning of the request being read: method and path. The
// server forgets them when it cannot read the rest, and the answer must still
// have the shape that the path asks for. It is only used by the connection's own
// goroutine.
type firstLine struct {
	text [96]byte
	n    int8
	over bool
}

func (l *firstLine) note(p []byte) {
	n := copy(l.text[l.n:], p)
	if i := bytes.IndexByte(l.text[l.n:int(l.n)+n], '\n'); i >= 0 {
		n = i
		l.over = true
	}
	l.n += int8(n)
	l.over = l.over || int(l.n) == len(l.text)
}

// split gives method and request target as far as they were seen.
func (l *firstLine) split() (method, uri []byte) {
	method, uri, _ = bytes.Cut(bytes.TrimLeft(l.text[:l.n], "\r\n"), []byte(" "))
	uri, _, _ = bytes.Cut(uri, []byte(" "))
	return method, uri
}

// directConn is what engines.Direct makes of a TCP connection.
type directConn interface {
	ReadPooled(*sync.Pool) (*[]byte, int, error)
	WriteAll(head []byte, pieces [][]byte) error
}

// aheads are buffers for the beginnings of requests.
var aheads = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}

// Read notes how a request begins. Between two requests the server waits for a
// single byte, to have no buffers meanwhile; what comes with it is read along.
func (c *clientConn) Read(p []byte) (n int, err error) {
	switch {
	case c.ahead != nil:
	case len(p) == 1 && c.direct != nil:
		if c.ahead, n, err = c.direct.ReadPooled(&aheads); err != nil {
			return 0, err
		}
		c.rest = (*c.ahead)[:n]
	default:
		n, err = c.Conn.Read(p)
	}
	if c.ahead != nil {
		n = copy(p, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			aheads.Put(c.ahead)
			c.ahead, c.rest = nil, nil
		}
	}
	if !c.first.over && n > 0 {
		c.first.note(p[:n])
	}
	return n, err
}

// nextRequest says that the request under way has been read.
func (c *clientConn) nextRequest() { c.first.n, c.first.over = 0, false }

// arm makes f the one to call, once, when the client goes; at once if it has
// gone already. f must not block.
func (c *clientConn) arm(f func()) {
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.onGone = f
	}
	c.mu.Unlock()
	if gone {
		f()
	}
}

// disarm ends what arm began: after it f is not called any more.
func (c *clientConn) disarm() {
	c.mu.Lock()
	c.onGone = nil
	c.mu.Unlock()
}

func (c *clientConn) hungUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if f := c.onGone; f != nil {
		c.onGone = nil
		f()
	}
}

func (c *clientConn) Close() error {
	c.hangups.forget(c)
	err := c.Conn.Close()
	c.closed.Do(c.leave)
	return err
}

func syscallConn(c net.Conn) (syscall.RawConn, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("connection has no file descriptor")
	}
	return sc.SyscallConn()
}
