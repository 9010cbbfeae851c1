//go:build unix

package engines

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet tells that nothing has come over a resting connection: neither its end
// nor bytes that nobody asked for, which would be taken for the next answer.
func quiet(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true // TLS: records of its own may lie there, and it notices its end itself
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		silent = err == unix.EAGAIN
	})
	return err == nil && silent
}
