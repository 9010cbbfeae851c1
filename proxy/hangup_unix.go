//go:build unix && !linux

package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// peekClosed tells whether the peer of c has closed and nothing is left to read.
func peekClosed(c net.Conn) (closed bool) {
	raw, err := syscallConn(c)
	if err != nil {
		return false
	}
	var one [1]byte
	_ = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		closed = (n == 0 && err == nil) || (err != nil && err != unix.EAGAIN && err != unix.EINTR)
	})
	return closed
}
