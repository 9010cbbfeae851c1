package sim

import (
	"errors"
	"net"
	"sync"
)

// gate is a listener that can be closed and opened again at the same address while its server goes on,
// and that knows its connections.
//
//	open ──shut──▶ shut ──reopen──▶ open
//	  └───────────Close──▶ closed ◀──┘
type gate struct {
	network, address string

	mu     sync.Mutex
	inner  net.Listener // nil while shut
	opened chan struct{}
	closed bool
	conns  map[*gateConn]struct{}
}

type gateConn struct {
	net.Conn
	gate *gate
}

func newGate(l net.Listener) *gate {
	return &gate{network: l.Addr().Network(), address: l.Addr().String(), inner: l, opened: make(chan struct{}), conns: map[*gateConn]struct{}{}}
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		inner, opened, closed := g.inner, g.opened, g.closed
		g.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if inner == nil {
			<-opened
			continue
		}
		c, err := inner.Accept()
		if err == nil {
			conn := &gateConn{Conn: c, gate: g}
			g.mu.Lock()
			if g.inner == inner {
				g.conns[conn] = struct{}{}
				g.mu.Unlock()
				return conn, nil
			}
			g.mu.Unlock()
			conn.reset() // accepted in the moment of closing
			continue
		}
		if !errors.Is(err, net.ErrClosed) {
			return nil, err
		}
	}
}

func (g *gate) Addr() net.Addr { return gateAddr{g.network, g.address} }

func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if g.inner != nil {
		return g.inner.Close()
	}
	close(g.opened)
	return nil
}

// shut closes the listener: new connections are refused by the kernel.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner == nil || g.closed {
		return
	}
	g.inner.Close()
	g.inner, g.opened = nil, make(chan struct{})
}

// reopen listens again.
func (g *gate) reopen() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner != nil || g.closed {
		return nil
	}
	l, err := net.Listen(g.network, g.address)
	if err != nil {
		return err
	}
	g.inner = l
	close(g.opened)
	return nil
}

// resetAll resets every connection.
func (g *gate) resetAll() {
	g.mu.Lock()
	var all []*gateConn
	for c := range g.conns {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		c.reset()
	}
}

// reset closes with a reset instead of a clean end.
func (c *gateConn) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

type gateAddr struct{ network, address string }

func (a gateAddr) Network() string { return a.network }
func (a gateAddr) String() string  { return a.address }
