package proxy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func encoded(t testing.TB, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, _ = flate.NewWriter(&b, -1)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	default:
		return text
	}
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// C026, C027: a compressed body is placed like a plain one and reaches the engine
// plain; the model in it decides who gets it.
func TestCompressedRequestsAreRead(t *testing.T) {
	body := `{"model":"m","input":[{"role":"user","content":"` + strings.Repeat("tide ", 8000) + `"},{"role":"assistant","content":"x"},{"role":"user","content":"y"}]}`
	for header, coded := range map[string]string{
		"zstd": encoded(t, "zstd", body), "gzip": encoded(t, "gzip", body), "deflate": encoded(t, "deflate", body), "identity": body, "GZIP": encoded(t, "gzip", body),
		"gzip, zstd": encoded(t, "zstd", encoded(t, "gzip", body)), "x-gzip": encoded(t, "gzip", body), "deflate ": encoded(t, "raw deflate", body),
	} {
		a, b := newFakeEngine(t, "a", nil), newFakeEngine(t, "b", nil)
		b.models = `{"object":"list","data":[{"id":"other"}]}`
		p := startProxy(t, "", a, b)
		c := p.dial()
		c.send(rawPost("/v1/responses", coded, "Content-Encoding: "+header, "Session_id: s"))
		if got := c.receive(); got.status != 200 || got.header.Get("X-Warmring-Engine") != "a" {
			t.Errorf("%s: %d %s", header, got.status, got.body)
			continue
		}
		call := a.got()[0]
		if call.body != body || call.header.Get("Content-Encoding") != "" || call.header.Get("Content-Length") != itoa(len(body)) {
			t.Errorf("%s: engine got %d bytes, %v", header, len(call.body), call.header)
		}
		if v := p.metric(`warmring_unparsed_total{reason="not json"}`); v != "" {
			t.Errorf("%s: unparsed %s", header, v)
		}
	}
}

// C026: what cannot be decoded is the client's mistake, and says which.
func TestCompressedRequestsThatCannotBeRead(t *testing.T) {
	bomb := strings.Repeat("\x00", 1<<20)
	var huge bytes.Buffer
	z, _ := zstd.NewWriter(&huge)
	for range 512 {
		_, _ = io.WriteString(z, bomb)
	}
	_ = z.Close()
	var hugeGzip bytes.Buffer
	g := gzip.NewWriter(&hugeGzip)
	for range 64 {
		_, _ = io.WriteString(g, bomb)
	}
	_ = g.Close()
	for _, tc := range []struct {
		name, coding, body string
		status             int
	}{
		{"corrupt zstd", "zstd", strings.Replace(encoded(t, "zstd", chat("hi there")), "hi there", "ho there", 1), 400},
		{"corrupt gzip", "gzip", "\x1f\x8b\x08junk", 400},
		{"cut gzip", "gzip", encoded(t, "gzip", chat("hi"))[:20], 400},
		{"plain under zstd", "zstd", chat("hi"), 400},
		{"unknown", "br", "x", 415},
		{"unknown below a known", "compress, gzip", encoded(t, "gzip", "x"), 415},
		{"too many", "gzip, gzip, gzip, gzip", "x", 415},
		{"zstd bomb", "zstd", huge.String(), 413},
		{"gzip bomb", "gzip", hugeGzip.String(), 413},
		{"bomb in a bomb", "gzip, gzip", encoded(t, "gzip", hugeGzip.String()), 413},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, "server.max_body = \"4MB\"", e)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := p.post("/v1/messages", tc.body, "Content-Encoding", tc.coding)
			runtime.ReadMemStats(&after)
			if got.status != tc.status || !strings.Contains(got.body, `"type":"error"`) {
				t.Errorf("%d %s, want %d", got.status, got.body, tc.status)
			}
			if len(e.got()) != 0 {
				t.Error("forwarded")
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("took %d MB", used>>20)
			}
		})
	}
}
