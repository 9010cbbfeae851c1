package proxy

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// An operator drains an engine while a prompt is between two slices there: another one serves it, and that was no attempt.
func TestAnEngineIsDrainedBetweenTwoSlices(t *testing.T) {
	p, both := twoSliceEngines(t, "retry.attempts = 1")
	for _, e := range both {
		e.set(func() { e.held = true })
	}
	body := chatStream(words("long", 20_000))
	long := later(p, context.Background(), body, "X-Session-Id", "long")
	drained, other, run := firstSlice(t, both)
	other.set(func() { other.held = false })
	time.Sleep(150 * time.Millisecond) // it runs, which earns the right to wait
	var shorts []<-chan reply
	for i := 0; p.upstreams()[drained.name].lanes.view().Waiting == 0; i++ {
		shorts = append(shorts, later(p, context.Background(), chatStream(fmt.Sprint("turn", i)), "X-Session-Id", fmt.Sprint("short", i)))
		time.Sleep(20 * time.Millisecond)
	}
	close(run.done)
	eventually(t, "the long one to be in the proxy", func() bool { return p.upstreams()[drained.name].lanes.view().Back == 1 })
	resp, err := http.Post(p.adminURL+"/api/engines/"+drained.name+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	close(other.short)
	got := wait(t, "the long answer", long)
	expectWhole(t, "the client", got)
	if x, ok := p.recent.explain(got.header.Get("X-Request-Id")); got.header.Get("X-Warmring-Engine") != other.name || !ok || x.Attempts != 1 {
		t.Errorf("answered by %s after %d attempts", got.header.Get("X-Warmring-Engine"), x.Attempts)
	}
	other.expectOnce(t, body, 0)
	close(drained.short)
	for _, short := range shorts {
		expectWhole(t, "a short turn", wait(t, "a short turn", short))
	}
	p.settled()
}
