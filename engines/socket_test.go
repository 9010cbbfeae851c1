package engines

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"net"
	"os"
	"testing"
	"time"
)

// pairOfSockets gives both ends of a TCP connection, the first of them direct.
func pairOfSockets(t testing.TB) (direct, plain net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	direct = Direct(dialed)
	t.Cleanup(func() { _ = direct.Close(); _ = plain.Close() })
	return direct, plain
}

// More than any socket buffer holds, in more pieces than one call takes, read by
// a peer that is slower than the writer: every byte arrives once and in order.
func TestSocketPassesManyPieces(t *testing.T) {
	direct, plain := pairOfSockets(t)
	r := rand.New(rand.NewSource(1))
	head := []byte("head")
	pieces := make([][]byte, 21)
	want := bytes.Clone(head)
	for i := range pieces {
		pieces[i] = make([]byte, r.Intn(1<<20))
		if i%5 == 0 {
			pieces[i] = nil
		}
		r.Read(pieces[i])
		want = append(want, pieces[i]...)
	}
	sent := make(chan error, 1)
	go func() {
		err := send(direct, head, pieces)
		_ = direct.(interface{ CloseWrite() error }).CloseWrite()
		sent <- err
	}()
	got, err := io.ReadAll(iotestHalf{plain})
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d arrived: %v", len(got), len(want), err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// iotestHalf reads a little at a time.
type iotestHalf struct{ io.Reader }

func (h iotestHalf) Read(p []byte) (int, error) { return h.Reader.Read(p[:min(len(p), 3000)]) }

func TestSocketSaysHowItEnds(t *testing.T) {
	t.Run("the peer's end is io.EOF", func(t *testing.T) {
		direct, plain := pairOfSockets(t)
		_, _ = plain.Write([]byte("last"))
		_ = plain.Close()
		got, err := io.ReadAll(direct)
		if string(got) != "last" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	})
	t.Run("a deadline is a timeout", func(t *testing.T) {
		direct, _ := pairOfSockets(t)
		_ = direct.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := direct.Read(make([]byte, 8))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("%v", err)
		}
	})
	t.Run("a peer that takes nothing is a timeout", func(t *testing.T) {
		direct, _ := pairOfSockets(t)
		_ = direct.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := direct.Write(make([]byte, 64<<20))
		if !isTimeout(err) || n == 64<<20 {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
	t.Run("closing wakes a reader", func(t *testing.T) {
		direct, _ := pairOfSockets(t)
		ended := make(chan error, 1)
		go func() {
			_, err := direct.Read(make([]byte, 8))
			ended <- err
		}()
		_ = direct.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("%v", err)
		}
	})
	t.Run("a reset peer fails the write", func(t *testing.T) {
		direct, plain := pairOfSockets(t)
		_ = plain.(*net.TCPConn).SetLinger(0)
		_ = plain.Close()
		var err error
		for err == nil {
			_, err = direct.Write(make([]byte, 1<<20))
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "write" {
			t.Fatalf("%v", err)
		}
	})
}

func BenchmarkSocket(b *testing.B) {
	for _, direct := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "direct"}[direct]
		b.Run(name, func(b *testing.B) {
			near, far := pairOfSockets(b)
			if s, ok := near.(interface{ NetConn() net.Conn }); ok && !direct {
				near = s.NetConn()
			}
			go func() { _, _ = io.Copy(far, far) }()
			event := make([]byte, 200)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := near.Write(event); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(near, event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
