package gossip

import (
	"fmt"
	"net"
	"sync/atomic"
)

// countedConn is a stream that counts its bytes. One that others opened is looked at before anything of it is handed on, and cut when it
// brings too much, or has no place; memberlist's line about that is what counts it as a stranger's.
type countedConn struct {
	net.Conn
	counts *traffic
	places *places // nil for connections that we opened
	source string  // host, see sourceOf
	secret bool
	came   atomic.Int64
	closed atomic.Bool

	judged bool
	head   []byte // read and not yet handed on
}

// Read is called by one goroutine at a time.
func (c *countedConn) Read(p []byte) (int, error) {
	if c.places != nil && !c.judged {
		if err := c.judge(); err != nil {
			return 0, err
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.read(p)
}

func (c *countedConn) read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.streamIn.Add(uint64(n))
	if c.came.Add(int64(n)) > maxStream && c.places != nil {
		_ = c.Close()
		return 0, fmt.Errorf("stream brings more than %d bytes", maxStream)
	}
	return n, err
}

// judge reads on until the shape of the stream is known, or nothing more comes.
func (c *countedConn) judge() error {
	head := make([]byte, maxHead)
	n := 0
	for {
		got, err := c.read(head[n:])
		n += got
		switch v := streamShape(head[:n], c.secret); {
		case v == refuse, v == more && n == maxHead:
			_ = c.Close()
			return fmt.Errorf("stream announces too much, or is compressed")
		case v == pass, err != nil && n > 0: // what came of a stream that ended is handed on: its end comes again
			c.judged, c.head = true, head[:n]
			ok, out := c.places.speak(c)
			c.counts.cut(out)
			switch {
			case ok:
				return nil
			case !c.closed.Load():
				c.counts.cut(c)
			}
			return fmt.Errorf("%d streams are open already", maxStreams)
		case err != nil:
			return err
		}
	}
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counts.streamOut.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) && c.places != nil {
		c.places.leave(c)
	}
	return c.Conn.Close()
}
