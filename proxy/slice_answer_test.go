package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A body of 3 MB in slices: whole and once, and the slices' memory is given back. One of 32 MB would be sent too often: it
// goes whole.
func TestHugeBodiesInSlices(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	contended(t, p)
	body := chatStream(words("huge", 3<<18))
	got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "huge"))
	expectWhole(t, "the client", got)
	e.expectOnce(t, body, 2)
	t.Logf("%d bytes in %s slices", len(body), got.header.Get("X-Warmring-Slices"))
	p.settled()
	sc := p.scratches.Get().(*scratch)
	if cap(sc.slice)+cap(sc.forward)+cap(sc.held) > 1<<20 {
		t.Errorf("a scratch keeps %d bytes of a slice, %d of a forwarded body, %d of an answer", cap(sc.slice), cap(sc.forward), cap(sc.held))
	}
	before, _, _ := e.saw()
	e.set(func() { e.wholes = nil })
	body = chatStream(words("larger", 8<<20))
	expectWhole(t, "the other client", wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "larger")))
	after, wholes, _ := e.saw()
	if len(after) != len(before) || len(wholes) != 1 || wholes[0] != body {
		t.Errorf("32 MB were sent in %d slices and %d times whole", len(after)-len(before), len(wholes))
	}
}

// Answers to slices that are not what an engine says to a chat, or much too long, or cut off, end slicing or the attempt;
// the client has its one answer.
func TestStrangeAnswersToSlices(t *testing.T) {
	for what, answer := range map[string]func(w http.ResponseWriter){
		"an error under 200": func(w http.ResponseWriter) { fmt.Fprint(w, `{"error":{"message":"max_tokens is too small"}}`) },
		"no JSON":            func(w http.ResponseWriter) { fmt.Fprint(w, "<html>secret</html>") },
		"nothing":            func(http.ResponseWriter) {},
		"a stream":           func(w http.ResponseWriter) { events(w, roleEvent, helloEvent, doneEvent) },
		"a long one": func(w http.ResponseWriter) {
			for range 6 << 10 {
				if _, err := io.WriteString(w, strings.Repeat("secret ", 150)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := newSliceEngine(t, "a")
			plain := e.answer
			e.answer = func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if strings.Contains(string(b), `"max_tokens":1`) {
					answer(w)
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(b)))
				plain(w, r)
			}
			p := startProxy(t, sliceSettings, e.fakeEngine)
			contended(t, p)
			body := chatStream(words("long", 20_000))
			got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long"))
			expectWhole(t, "the client", got)
			noSecret(t, got)
			e.expectOnce(t, body, 0)
			if n := p.metric(`warmring_slice_failures_total{engine="a"}`); n != "1" {
				t.Errorf("%s failures counted", n)
			}
		})
	}
}
