//go:build unix

package sim

import (
	"net"
	"syscall"
)

// closedByPeer tells whether the other side has closed a connection, as the kernel knows it: long before a server that is
// busy notices. Bytes that were sent before and not read yet hide the close.
func closedByPeer(c net.Conn) (closed bool) {
	if g, ok := c.(*gateConn); ok {
		c = g.Conn
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true // closed here as well
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		closed = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return closed || err != nil
}
