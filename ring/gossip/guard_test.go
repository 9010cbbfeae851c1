package gossip

import (
	"io"
	"net"
	"testing"
	"time"
)

// A stream that brings more than any state can be is cut before it is all held in
// memory.
func TestAStreamWithoutEndIsCut(t *testing.T) {
	near, far := net.Pipe()
	var counts traffic
	var open places
	c := &countedConn{Conn: near, counts: &counts, places: &open}
	open.enter(c)
	sent := make(chan error, 1)
	go func() {
		_ = far.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := io.CopyN(far, zeros{}, 20<<20)
		sent <- err
	}()
	got, err := io.Copy(io.Discard, c)
	if err == nil || got > maxStream {
		t.Errorf("%d bytes were taken, error %v", got, err)
	}
	if err := <-sent; err == nil {
		t.Error("the sender could send everything")
	}
	if n := len(open.silent) + len(open.talking); n != 0 {
		t.Errorf("%d streams open", n)
	}
	_ = far.Close()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
