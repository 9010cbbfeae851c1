// Package ports finds loopback ports for processes that are told their port before they open it.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Below the range that systems take the ports of outgoing connections from (32768 and up on Linux): a port from there is
// often gone by the time a process opens it.
const low, high = 15_000, 32_000

// Free is a port on which nobody listens now, neither for TCP nor for UDP. It is chosen at random, so that test runs
// side by side hardly meet.
func Free() (int, error) {
	for range 200 {
		port := low + rand.IntN(high-low)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		u, err := net.ListenPacket("udp", address)
		_ = l.Close()
		if err == nil {
			return port, u.Close()
		}
	}
	return 0, errors.New("no loopback port is free for both TCP and UDP")
}
