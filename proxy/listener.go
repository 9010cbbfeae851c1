package proxy

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// listener hands out connections whose clients' closing is watched.
type listener struct {
	net.Listener
	hangups *hangups
}

func (l *listener) Accept() (net.Conn, error) {
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
			return nil, err
		}
		tuneAccepted(c)
		cc := &clientConn{Conn: c, hangups: l.hangups}
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

	mu     sync.Mutex
	gone   bool
	onGone func()
}

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
	return c.Conn.Close()
}

func syscallConn(c net.Conn) (syscall.RawConn, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("connection has no file descriptor")
	}
	return sc.SyscallConn()
}
