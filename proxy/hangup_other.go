//go:build !linux

package proxy

import (
	"net"
	"sync"
	"time"
)

// hangups is the portable stand-in for the epoll loop: it looks at every
// connection four times a second by a one-byte read that takes nothing away
// where the system allows to peek, and not at all elsewhere; then a client's
// close is noticed with the next byte written to it.
type hangups struct {
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	conns map[*clientConn]struct{}
}

func newHangups() (*hangups, error) {
	h := &hangups{stop: make(chan struct{}), done: make(chan struct{}), conns: make(map[*clientConn]struct{})}
	go h.loop()
	return h, nil
}

func (h *hangups) watch(c *clientConn) {
	h.mu.Lock()
	h.conns[c] = struct{}{}
	h.mu.Unlock()
}

func (h *hangups) forget(c *clientConn) {
	h.mu.Lock()
	delete(h.conns, c)
	h.mu.Unlock()
}

func (h *hangups) loop() {
	defer close(h.done)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
		h.mu.Lock()
		conns := make([]*clientConn, 0, len(h.conns))
		for c := range h.conns {
			conns = append(conns, c)
		}
		h.mu.Unlock()
		for _, c := range conns {
			if peekClosed(c.Conn) {
				c.hungUp()
			}
		}
	}
}

func (h *hangups) close() {
	close(h.stop)
	<-h.done
}

func tuneAccepted(net.Conn) {}
