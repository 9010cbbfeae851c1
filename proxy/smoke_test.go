package proxy

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func newTestLogger(b *syncBuffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestASessionStaysOnItsEngine(t *testing.T) {
	a, b := newFakeEngine(t, "a", nil), newFakeEngine(t, "b", nil)
	p := startProxy(t, "", a, b)
	var history []string
	var first string
	for turn := range 5 {
		history = append(history, strings.Repeat("word ", 200))
		got := p.post("/v1/chat/completions", chat(history...), "X-Session-Id", "s-1")
		if got.status != 200 {
			t.Fatalf("turn %d: %d %s", turn, got.status, got.body)
		}
		engine := got.header.Get("X-Warmring-Engine")
		if turn == 0 {
			first = engine
		} else if engine != first || got.header.Get("X-Warmring-Reason") != "bound" {
			t.Errorf("turn %d went to %s (%s), the first to %s", turn, engine, got.header.Get("X-Warmring-Reason"), first)
		}
	}
}

func TestAStreamPassesByteForByte(t *testing.T) {
	stream := roleEvent + helloEvent + stopEvent + usageEvent + doneEvent
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		events(w, roleEvent, helloEvent, stopEvent, usageEvent, doneEvent)
	})
	p := startProxy(t, "", e)
	got := p.post("/v1/chat/completions", chatStream("hi"))
	if got.status != 200 || got.body != stream || got.err != nil {
		t.Fatalf("%d %v\n%s", got.status, got.err, got.body)
	}
	if v := p.metric("warmring_cached_tokens_total"); v != "12" {
		t.Errorf("cached tokens %s, want 12", v)
	}
}
