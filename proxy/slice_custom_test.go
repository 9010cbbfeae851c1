package proxy

import (
	"context"
	"strings"
	"testing"

	"github.com/warmring/warmring/engines"
)

// An engine of a kind that nobody knows may bill every token that it is sent: it gets slices only once it has said that it found
// something cached, or if its operator says so, and no longer when it is another process.
func TestAnUnknownEngineIsSlicedOnceItHasToldOfItsCache(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	turn := func(body string) {
		t.Helper()
		got := wait(t, "a short turn", later(p, context.Background(), body, "X-Session-Id", "short", "X-Quick", "1"))
		if got.err != nil || !strings.Contains(got.text, "[DONE]") {
			t.Fatalf("a short turn got %v %q", got.err, got.text)
		}
	}
	prompt := func(name string) (slices string) {
		t.Helper()
		got := wait(t, "the answer", later(p, context.Background(), chatStream(words(name, 20_000)), "X-Session-Id", name))
		if got.err != nil {
			t.Fatal(got.err)
		}
		return got.header.Get("X-Warmring-Slices")
	}
	e.set(func() { e.untold = true })
	turn(chatStream("hi"))
	if n := prompt("first"); n != "" {
		t.Errorf("an engine that has told nothing of a cache gets %s slices", n)
	}
	if v := p.upstreams()["a"].lanes.view(); v.Way.String() != "hold" {
		t.Errorf("the way is %s: %s", v.Way, v.Why)
	}
	e.set(func() { e.untold = false })
	turn(chatStream("hi again"))
	if n := prompt("second"); n == "" {
		t.Error("it has told of its cache and gets no slices")
	}
	p.engineChanged(p.upstreams()["a"].Engine, engines.Restarted)
	e.set(func() { e.untold = true })
	turn(chatStream("hi once more"))
	if n := prompt("third"); n != "" {
		t.Errorf("another process, which has told nothing, gets %s slices", n)
	}

	e = newSliceEngine(t, "b")
	e.untold = true
	e.toml += "\npreempt = \"yes\""
	p = startProxy(t, sliceSettings, e.fakeEngine)
	turn(chatStream("hi"))
	if n := prompt("fourth"); n == "" {
		t.Error("the operator's word is not enough")
	}
}
