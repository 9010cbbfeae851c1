//go:build !linux

package engines

import "net"

// Direct returns c: see socket_linux.go for what it does on Linux.
func Direct(c net.Conn) net.Conn { return c }
