package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client's bytes arrive in any pieces, several requests in one or one in
// several: the server reads what was sent, whether it asks for one byte or many.
func TestReadingAheadChangesNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	hangups, err := newHangups()
	if err != nil {
		t.Fatal(err)
	}
	defer hangups.close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := newListener(ln, hangups, 1).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := rand.New(rand.NewSource(1))
	want := make([]byte, 200_000)
	r.Read(want)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(1+r.Intn(9000), len(rest))
			_, _ = client.Write(rest[:n])
			rest = rest[n:]
		}
		_ = client.(*net.TCPConn).CloseWrite()
	}()
	sizes := rand.New(rand.NewSource(2))
	var got []byte
	for {
		p := make([]byte, []int{1, 1, 7, 4095, 16384}[sizes.Intn(5)])
		n, err := conn.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d, or others", len(got), len(want))
	}
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("%v", err)
	}
}

// Streams leave in the same bytes whichever way they are written: straight to
// the connection, or by the server, as for HTTP/1.0.
func TestBothWaysOfPassingAStreamAreOne(t *testing.T) {
	pieces := []string{helloEvent, strings.Repeat(helloEvent, 200), stopEvent + usageEvent, doneEvent}
	e := streamingEngine(t, "a", pieces...)
	p := startProxy(t, "", e)
	body := chatStream("hi")
	for _, version := range []string{"1.1", "1.0"} {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// Two requests, so that the second finds everything in use.
		for range 2 {
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/%s\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n%s", version, len(body), body)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(version, err)
			}
			got, err := io.ReadAll(resp.Body)
			if want := strings.Join(pieces, ""); string(got) != want || err != nil {
				t.Fatalf("HTTP/%s: %d bytes of %d: %v", version, len(got), len(want), err)
			}
			if resp.Close {
				break
			}
		}
	}
}
