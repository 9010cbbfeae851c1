package engines

import (
	"io"
	"net"
	"testing"
	"time"
)

// Connections that nobody needs any more are closed without waiting for the next
// request: the engine has closed its side long before.
func TestRestedConnectionsAreReaped(t *testing.T) {
	now := time.Unix(1000, 0)
	var far []net.Conn
	p := NewPool(Target{}, PoolOptions{MaxIdle: 3 * time.Second, Now: func() time.Time { return now }})
	rest := func() {
		near, other := net.Pipe()
		far = append(far, other)
		p.open.Add(1)
		p.rest(&conn{Conn: near})
	}
	for range 5 {
		rest()
	}
	now = now.Add(2 * time.Second)
	rest()
	p.Reap(now.Add(time.Second))
	if n := p.Open(); n != 6 {
		t.Fatalf("%d connections after three seconds of rest, want 6", n)
	}
	now = now.Add(2 * time.Second)
	p.Reap(now)
	if n := p.Open(); n != 1 {
		t.Fatalf("%d connections, want the last alone", n)
	}
	for i, c := range far[:5] {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if c := p.newest(); c == nil || !c.reused {
		t.Error("the last one cannot be used")
	} else {
		p.rest(c)
	}
	p.Reap(now.Add(time.Hour))
	if n := p.Open(); n != 0 {
		t.Errorf("%d connections in the end", n)
	}
	p.Close()
}
