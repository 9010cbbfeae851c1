package engines

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the chunk sizes and however the bytes arrive, the body comes out
// whole and the end is found at the same byte.
func TestDechunkerGivesTheSameBodyForEveryCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw, want bytes.Buffer
		for _, chunk := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 50), 0, 8).Draw(t, "chunks") {
			ext := rapid.SampledFrom([]string{"", ";a=b", " ;x", ";\"q\""}).Draw(t, "extension")
			fmt.Fprintf(&raw, "%x%s\r\n%s\r\n", len(chunk), ext, chunk)
			want.Write(chunk)
		}
		raw.WriteString(rapid.SampledFrom([]string{"0\r\n\r\n", "000\r\nX-Sum: 1\r\n\r\n", "0;e\r\n\r\n"}).Draw(t, "end"))
		raw.WriteString("NEXT")
		var d dechunker
		var got bytes.Buffer
		rest := raw.Bytes()
		for len(rest) > 0 && !d.done() {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			p := append([]byte(nil), rest[:n]...)
			m, used, err := d.decode(p)
			if err != nil {
				t.Fatalf("decode: %v", err)
			}
			got.Write(p[:m])
			rest = rest[used:]
			if used < n && !d.done() {
				t.Fatalf("stopped after %d of %d bytes without the end", used, n)
			}
		}
		if !d.done() || string(rest) != "NEXT" || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("done %v, rest %q, body %q, want %q", d.done(), rest, got.Bytes(), want.Bytes())
		}
	})
}

func FuzzDechunker(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), 3)
	f.Add([]byte("5;x=\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n"), 1)
	f.Add([]byte("ffffffffffffffffff\r\n"), 2)
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		if cut < 1 {
			cut = 1
		}
		decode := func(size int) (string, bool, bool) {
			var d dechunker
			var out []byte
			for rest := raw; len(rest) > 0 && !d.done(); {
				n := min(size, len(rest))
				p := append([]byte(nil), rest[:n]...)
				m, used, err := d.decode(p)
				out = append(out, p[:m]...)
				if err != nil {
					return string(out), false, true
				}
				rest = rest[used:]
			}
			return string(out), d.done(), false
		}
		one, oneDone, oneErr := decode(len(raw) + 1)
		many, manyDone, manyErr := decode(cut)
		if one != many || oneDone != manyDone || oneErr != manyErr {
			t.Fatalf("in one piece %q %v %v, in pieces of %d %q %v %v", one, oneDone, oneErr, cut, many, manyDone, manyErr)
		}
		// What it accepts as complete, the standard library reads alike.
		if oneDone {
			std, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(raw)))
			if err == nil && string(std) != one {
				t.Fatalf("standard library reads %q, got %q", std, one)
			}
		}
	})
}
