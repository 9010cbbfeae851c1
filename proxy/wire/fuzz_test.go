package wire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

func addStreams(f *testing.F) {
	for i, c := range capturedStreams {
		body := captured(f, c.file)
		f.Add(body, uint8(c.family), uint64(i))
		f.Add(lineEndVariants(body)["mixed"], uint8(c.family), uint64(i))
		f.Add(lineEndVariants(body)["two data lines"], uint8(c.family), uint64(i))
	}
	f.Add(stream(`{"choices":[{"delta":{"content":"`+strings.Repeat("x", sniffLimit)+`"}}],"usage":{"prompt_tokens":5}}`), uint8(prompt.Chat), uint64(9))
	f.Add([]byte("\xef\xbb\xbfdata\n\ndata:\r\rdata: {\"error\":\"x\"}\r\n\r\n"), uint8(prompt.Chat), uint64(1))
}

// cutAtRandom cuts a copy of b, so that a view kept too long would be noticed: each piece is overwritten after use.
func cutAtRandom(b []byte, seed uint64) (pieces [][]byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	b = bytes.Clone(b)
	for len(b) > 0 {
		n := 1 + r.IntN(min(len(b), 1+r.IntN(200)))
		pieces = append(pieces, b[:n:n])
		b = b[n:]
	}
	return pieces
}

// Any cut of a stream gives the same result as the whole, and no bytes make the Sniffer panic.
func FuzzSnifferAnyCut(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, body []byte, family uint8, seed uint64) {
		fam := families[int(family)%len(families)]
		var whole, pieces Sniffer
		whole.Reset(fam)
		pieces.Reset(fam)
		whole.Write(body)
		for _, p := range cutAtRandom(body, seed) {
			pieces.Write(p)
			for i := range p {
				p[i] = '~'
			}
		}
		if a, b := result(&whole), result(&pieces); a != b || whole.AtBoundary() != pieces.AtBoundary() {
			t.Fatalf("whole  %+v\npieces %+v", a, b)
		}
		whole.Close()
		pieces.Close()
		if a, b := result(&whole), result(&pieces); a != b {
			t.Fatalf("closed: whole  %+v\npieces %+v", a, b)
		}
		if pieces.seen > 0 && cap(pieces.events.data) > 2*sniffLimit {
			t.Fatalf("buffer of %d bytes", cap(pieces.events.data))
		}
	})
}

// Any cut gives the same bytes; what is taken out is whole usage-only events and nothing else.
func FuzzUsageFilterAnyCut(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, body []byte, _ uint8, seed uint64) {
		if len(body) > filterLimit {
			return
		}
		want := ""
		for _, event := range splitEvents(string(body)) {
			if !usageOnly([]byte(event)) {
				want += event
			}
		}
		if got := filtered(body); got != want {
			t.Fatalf("whole:\n got %q\nwant %q", got, want)
		}
		var filter UsageFilter
		var got []byte
		for _, p := range cutAtRandom(body, seed) {
			got = filter.Filter(got, p)
			for i := range p {
				p[i] = '~'
			}
		}
		if got = filter.Flush(got); string(got) != want {
			t.Fatalf("pieces:\n got %q\nwant %q", got, want)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	for _, file := range []string{"vllm-0.32.0/chat-json.http", "vllm-0.32.0/responses-json.http", "sglang-0.5.23/messages.http"} {
		f.Add(captured(f, file))
	}
	f.Add([]byte(`{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens"`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, fam := range families {
			u, _ := ReadAnswer(fam, body)
			if u.Prompt < -1 || u.Cached < -1 || u.Output < -1 || u.Prompt == 0 {
				t.Fatalf("%+v", u)
			}
		}
		ReadAnswer(prompt.Responses, append(bytes.Repeat([]byte(" "), wholeScan), body...))
		RouteOf(body, body)
		ResponseIDOf(body)
	})
}
