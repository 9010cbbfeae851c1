package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBodiesAreValidAndAsLargeAsTheyAreCalled(t *testing.T) {
	for name, about := range map[string]int{"2 KB": 2_000, "220 KB": 215_000, "450 KB": 435_000, "grow": 145_000} {
		set, tail := conversations(name, true)
		if len(set) != sessions {
			t.Fatalf("%s: %d conversations", name, len(set))
		}
		for n, c := range set[:3] {
			for _, end := range c.ends {
				var body struct {
					Messages []struct{ Role string }
					Stream   bool
				}
				if err := json.Unmarshal(append(c.text[:end:end], tail...), &body); err != nil {
					t.Fatalf("%s, conversation %d: %v", name, n, err)
				}
				if !body.Stream || body.Messages[0].Role != "system" {
					t.Fatalf("%s: stream %v, first message of %q", name, body.Stream, body.Messages[0].Role)
				}
			}
		}
		size := set[0].ends[turns/2] + len(tail)
		if size < about*7/10 || size > about*13/10 {
			t.Errorf("%s: the body of a middle turn has %d bytes", name, size)
		}
	}
}

// startFake runs a fake inside the test.
func startFake(t *testing.T) (f *fake, address string) {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	f = newFake(3)
	ln, err := f.listen(address)
	if err != nil {
		t.Fatal(err)
	}
	go f.accept(ln)
	t.Cleanup(func() { ln.Close() })
	return f, address
}

func TestSessionsTakeEveryTurnOnceAndSayWhoAnswered(t *testing.T) {
	_, address := startFake(t)
	l := load{address: address, body: "2 KB", conns: 5, once: true, limit: 20 * time.Second}
	o := l.run(&sets{})
	if o.errors != 0 || o.good != sessions*turns {
		t.Fatalf("%d good, %d errors, the first: %s", o.good, o.errors, o.firstError)
	}
	v := judge(o.visits, 4)
	if v.stay != 1 || v.sessions[3] != sessions || v.requests != 4 {
		t.Errorf("all turns went to engine 3 of 4, but the verdict is %+v", v)
	}
}

func TestAStreamIsCompleteOnlyWithItsDone(t *testing.T) {
	f, address := startFake(t)
	l := load{address: address, body: "2 KB", stream: true, conns: 3, total: 30, limit: 20 * time.Second}
	if o := l.run(&sets{}); o.errors != 0 || o.good != 30 {
		t.Errorf("%d good, %d errors, the first: %s", o.good, o.errors, o.firstError)
	}
	var cut answered
	for _, p := range []string{"data: {}\n\ndata: [DO", "NE", "]\n\n"} {
		if cut.done {
			t.Error("done before its mark was whole")
		}
		cut.see([]byte(p))
	}
	if !cut.done {
		t.Error("a mark that came in three pieces was missed")
	}
	f.park.Store(1)
	open, err := openStreams(address, (&sets{}).get("2 KB", true), 100)
	if err != nil || len(open) != 100 {
		t.Fatalf("%d streams open: %v", len(open), err)
	}
	f.park.Store(0)
	f.release()
	if n, err := endStreams(open); n != 100 {
		t.Errorf("%d of 100 streams ended whole: %v", n, err)
	}
}

func TestTheFakeFindsWhatItHasSeen(t *testing.T) {
	f := newFake(0)
	f.cache.Store(1)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1024)
	if n := f.cached(body); n != 0 {
		t.Errorf("a cold cache found %d tokens", n)
	}
	longer := append(bytes.Clone(body), body...)
	if n := f.cached(longer); n != len(body)/bytesPerToken {
		t.Errorf("%d tokens found of a prefix of %d", n, len(body)/bytesPerToken)
	}
	longer[0] = 'x'
	if n := f.cached(longer); n != 0 {
		t.Errorf("another beginning, but %d tokens found", n)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	var out strings.Builder
	b := &bench{rounds: 10, streams: 5000, report: report{out: &out}}
	peers := []*up{{peer: peer{name: "direct"}}, {peer: peer{name: "vllm-router-ca"}, process: &process{}}, {peer: peer{name: "nginx"}, process: &process{}}}
	results := map[string]*figures{}
	for _, p := range peers {
		f := newFigures()
		for _, m := range speedMeasures(1) {
			for _, s := range []map[string]spread{f.cpu, f.p50, f.p99, f.addP50, f.addP99, f.rate} {
				s[m.name] = spread{10.123456, 20.23, 12345}
			}
		}
		f.peak, f.requests = spread{123.4, 123.5, 1234}, 123456
		results[p.name] = f
	}
	b.speedTables(peers, results)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestASpreadTellsMedianAndEnds(t *testing.T) {
	if s := (spread{3, 1, 2, 10}).String(); s != "2.50 (1.00–10.0)" {
		t.Error(s)
	}
	if s := (spread{}).String(); s != "–" {
		t.Error(s)
	}
}

func TestACallEndsAtItsProperEndOnly(t *testing.T) {
	read := func(raw string) error {
		c := caller{in: bufio.NewReader(strings.NewReader(raw))}
		if _, err := c.readHead(); err != nil {
			return err
		}
		for {
			if _, err := c.readPiece(); err != nil {
				return err
			}
		}
	}
	head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	if err := read(head + "3\r\nabc\r\n0\r\n\r\n"); err != io.EOF {
		t.Error(err)
	}
	for _, raw := range []string{head + "3\r\nabc\r\n", head + "3\r\nab", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"} {
		if err := read(raw); err == nil || err == io.EOF {
			t.Errorf("%q was taken for a whole answer", raw)
		}
	}
}
