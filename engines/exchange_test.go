package engines

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeEngine accepts connections and hands each to serve; closing tells when a
// peer's close was seen.
type fakeEngine struct {
	net.Listener
	wg    sync.WaitGroup
	conns atomic.Int64
}

func newFakeEngine(t *testing.T, serve func(c net.Conn, n int64)) *fakeEngine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeEngine{Listener: ln}
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := f.conns.Add(1)
			f.wg.Add(1)
			go func() {
				defer f.wg.Done()
				defer c.Close()
				serve(c, n)
			}()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); f.wg.Wait() })
	return f
}

func (f *fakeEngine) pool(opt PoolOptions) *Pool {
	return NewPool(Target{Address: f.Addr().String(), Host: f.Addr().String(), Version: "v1"}, opt)
}

// readRequest reads one request with its body.
func readRequest(br *bufio.Reader) (body []byte, err error) {
	req, err := http.ReadRequest(br)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(req.Body)
}

func post(body string) (head []byte, pieces [][]byte) {
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body)), [][]byte{[]byte(body)}
}

func readAll(x *Exchange) (string, error) {
	var out []byte
	buf := make([]byte, 64)
	for {
		n, err := x.Read(buf)
		out = append(out, buf[:n]...)
		if err == io.EOF {
			return string(out), nil
		}
		if err != nil {
			return string(out), err
		}
	}
}

func TestAnswersOfEveryFramingAreReadWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		answer, body string
		kept         bool
	}{
		"length":          {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true},
		"chunked":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "hello", true},
		"chunked trailer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nSum: 1\r\n\r\n", "hello", true},
		"empty":           {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
		"no content":      {"HTTP/1.1 204 No Content\r\n\r\n", "", true},
		"close":           {"HTTP/1.0 200 OK\r\n\r\nhello", "hello", false},
		"asked to close":  {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "hello", false},
		"early hints":     {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true},
		"surplus bytes":   {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK", "hello", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEngine(t, func(c net.Conn, _ int64) {
				br := bufio.NewReader(c)
				if _, err := readRequest(br); err != nil {
					return
				}
				if name == "surplus bytes" { // must be there when the end is read
					_, _ = io.WriteString(c, tc.answer)
				}
				for i := 0; i < len(tc.answer) && name != "surplus bytes"; i++ { // byte by byte: no cut may matter
					if _, err := c.Write([]byte{tc.answer[i]}); err != nil {
						return
					}
				}
				if tc.kept {
					_, _ = br.ReadByte() // until the other side closes
				}
			})
			p := f.pool(PoolOptions{})
			defer p.Close()
			var x Exchange
			head, pieces := post("{}")
			if err := x.Do(p, head, pieces, false, Limits{}); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(&x)
			if err != nil || got != tc.body {
				t.Fatalf("body %q, error %v; want %q", got, err, tc.body)
			}
			x.Close()
			if kept := p.Open() == 1; kept != tc.kept {
				t.Errorf("connection kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

// Whatever the engine is doing, a cancel ends the exchange and the engine sees
// the connection close.
func TestCancelInEveryPhaseReachesTheEngine(t *testing.T) {
	for name, answer := range map[string]string{
		"before the head":       "",
		"inside the head":       "HTTP/1.1 200 OK\r\nContent-Ty",
		"before the first byte": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"inside the body":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	} {
		t.Run(name, func(t *testing.T) {
			begun, closed := make(chan struct{}), make(chan struct{})
			f := newFakeEngine(t, func(c net.Conn, _ int64) {
				br := bufio.NewReader(c)
				if _, err := readRequest(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
				close(begun)
				_, _ = br.ReadByte()
				close(closed)
			})
			p := f.pool(PoolOptions{})
			defer p.Close()
			var x Exchange
			result := make(chan error, 1)
			go func() {
				head, pieces := post("{}")
				err := x.Do(p, head, pieces, false, Limits{})
				if err == nil {
					_, err = readAll(&x)
				}
				x.Close()
				result <- err
			}()
			<-begun
			x.Cancel()
			if err := <-result; !errors.Is(err, ErrCanceled) {
				t.Errorf("error %v, want ErrCanceled", err)
			}
			select {
			case <-closed:
			case <-time.After(5 * time.Second):
				t.Error("the engine did not see the close")
			}
			if n := p.Open(); n != 0 {
				t.Errorf("%d connections left", n)
			}
		})
	}
}

func TestCancelWhileDialing(t *testing.T) {
	dialing := make(chan struct{})
	p := NewPool(Target{Address: "192.0.2.1:1"}, PoolOptions{ConnectTimeout: time.Minute, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		close(dialing)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	var x Exchange
	go func() { <-dialing; x.Cancel() }()
	head, pieces := post("{}")
	if err := x.Do(p, head, pieces, false, Limits{}); !errors.Is(err, ErrCanceled) {
		t.Fatalf("error %v, want ErrCanceled", err)
	}
}

// C149, C194: engines drop idle connections without notice. The request goes out
// once more over a fresh connection, and the engine works on it once.
func TestStaleConnectionIsRetriedOnceOnAFreshOne(t *testing.T) {
	var answered atomic.Int64
	f := newFakeEngine(t, func(c net.Conn, n int64) {
		br := bufio.NewReader(c)
		if _, err := readRequest(br); err != nil {
			return
		}
		answered.Add(1)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		// Then it closes, as uvicorn does after 5 s of rest.
	})
	p := f.pool(PoolOptions{MaxIdle: time.Hour})
	defer p.Close()
	for turn := range 20 {
		var x Exchange
		head, pieces := post(strings.Repeat("x", 300_000))
		if err := x.Do(p, head, pieces, false, Limits{}); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		if got, err := readAll(&x); err != nil || got != "ok" {
			t.Fatalf("turn %d: %q, %v", turn, got, err)
		}
		x.Close()
	}
	if n := answered.Load(); n != 20 {
		t.Errorf("the engine worked on %d requests, want 20", n)
	}
}

// Bytes that come after an answer's end must never be taken for the next answer.
func TestLateSurplusIsNotTheNextAnswer(t *testing.T) {
	late := make(chan struct{})
	written := make(chan struct{})
	f := newFakeEngine(t, func(c net.Conn, n int64) {
		br := bufio.NewReader(c)
		if _, err := readRequest(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 1 {
			<-late
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			close(written)
		}
		_, _ = br.ReadByte()
	})
	p := f.pool(PoolOptions{})
	defer p.Close()
	for turn := range 2 {
		var x Exchange
		head, pieces := post("{}")
		if err := x.Do(p, head, pieces, false, Limits{}); err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(&x); err != nil || got != "ok" {
			t.Fatalf("turn %d: %q, %v", turn, got, err)
		}
		x.Close()
		if turn == 0 {
			close(late)
			<-written
		}
	}
}

func TestAnEngineThatClosesWithoutAnswerIsBrokenNotRetried(t *testing.T) {
	f := newFakeEngine(t, func(c net.Conn, _ int64) { _, _ = readRequest(bufio.NewReader(c)) })
	p := f.pool(PoolOptions{})
	var x Exchange
	head, pieces := post("{}")
	if err := x.Do(p, head, pieces, false, Limits{}); !errors.Is(err, ErrBroken) {
		t.Fatalf("error %v, want ErrBroken", err)
	}
	if n := f.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestTruncatedAnswersAreNotComplete(t *testing.T) {
	for name, answer := range map[string]string{
		"length":          "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		"inside a chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
		"between chunks":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"no last newline": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEngine(t, func(c net.Conn, _ int64) {
				_, _ = readRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, answer)
			})
			p := f.pool(PoolOptions{})
			var x Exchange
			head, pieces := post("{}")
			if err := x.Do(p, head, pieces, false, Limits{}); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(&x)
			if got != "hello" || !errors.Is(err, ErrTruncated) {
				t.Errorf("%q, %v; want hello and ErrTruncated", got, err)
			}
			x.Close()
			if n := p.Open(); n != 0 {
				t.Errorf("%d connections left", n)
			}
		})
	}
}

func TestEarlyRefusalOfALargeBodyIsRead(t *testing.T) {
	f := newFakeEngine(t, func(c net.Conn, _ int64) {
		_, _ = c.Read(make([]byte, 1000))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	})
	p := f.pool(PoolOptions{})
	var x Exchange
	head, pieces := post(strings.Repeat("x", 30<<20))
	err := x.Do(p, head, pieces, false, Limits{})
	if err != nil {
		if !errors.Is(err, ErrBroken) { // the kernel may have thrown the answer away with the reset
			t.Fatal(err)
		}
		return
	}
	got, _ := readAll(&x)
	if x.Answer.Status != 413 || !strings.HasPrefix("big", got) {
		t.Errorf("status %d, body %q", x.Answer.Status, got)
	}
	x.Close()
}

func TestGarbageIsMalformed(t *testing.T) {
	for _, answer := range []string{
		"SSH-2.0-OpenSSH_9\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxAnswerHead) + "\r\n\r\n",
	} {
		f := newFakeEngine(t, func(c net.Conn, _ int64) {
			_, _ = readRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, answer)
		})
		p := f.pool(PoolOptions{})
		var x Exchange
		head, pieces := post("{}")
		if err := x.Do(p, head, pieces, false, Limits{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.40q: error %v, want ErrMalformed", answer, err)
		}
	}
}

func TestNobodyThereIsUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	p := NewPool(Target{Address: address}, PoolOptions{})
	var x Exchange
	head, pieces := post("{}")
	err = x.Do(p, head, pieces, false, Limits{})
	if !errors.Is(err, ErrUnreachable) || !IsRefused(err) || !strings.Contains(err.Error(), address) {
		t.Fatalf("error %v, want ErrUnreachable naming %s", err, address)
	}
}

// The answer's head as a caller sees it.
func TestAnswerHead(t *testing.T) {
	raw := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-A: 1\r\nX-A:  2 \r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
	var a Answer
	var b bodyReader
	if _, err := b.parseHead([]byte(raw), &a, false); err != nil {
		t.Fatal(err)
	}
	var names bytes.Buffer
	a.EachHeader(func(n, v []byte) { fmt.Fprintf(&names, "%s=%s;", n, v) })
	want := "Content-Type=text/event-stream; charset=utf-8;X-A=1;X-A=2;Connection=keep-alive;Transfer-Encoding=chunked;"
	if names.String() != want || !a.EventStream() || !a.Chunked || a.ContentLength != -1 || !b.keepAlive {
		t.Errorf("got %q %+v", names.String(), a)
	}
}
