package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A turn of a session that nobody knows waits for other proxies' news of it only if somebody is at work who could have some, and if it
// has a history worth the name. Callers without sessions, who send a few examples, pay nothing.
func TestOnlyWhatWouldCostMuchWaitsForNews(t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-hold") != "" {
			<-hold
		}
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]}`)
	})
	t.Cleanup(release)
	both := startProxies(t, 2, map[string]string{"a": e.URL}, true)
	p, other := both[0], both[1]
	asked := 0
	ask := func(words string) {
		t.Helper()
		asked++
		first := fmt.Sprintf("question %d %s", asked, words)
		if got := p.post("/v1/chat/completions", chat(first, "an answer", "and now?"), "x-warmring-session", fmt.Sprint("s", asked)); got.status != 200 {
			t.Fatal(got.status, got.body)
		}
	}
	awaited := func() string { return p.metric("warmring_news_awaited_total") }
	long := strings.Repeat("all that was said before ", 4000)
	eventually(t, "the cluster to be quiet", func() bool { return p.cluster.Load().IsQuiet() })
	ask("short")
	ask(long)
	if got := awaited(); got != "0" {
		t.Errorf("%s turns have waited for news of proxies that have nothing to do", got)
	}
	running := later(other, context.Background(), chat("something that takes its time"), "x-hold", "1")
	eventually(t, "the work of the other to be heard of", func() bool { return !p.cluster.Load().IsQuiet() })
	ask("short")
	if got := awaited(); got != "0" {
		t.Errorf("%s short turns have waited", got)
	}
	ask(long)
	if got := awaited(); got != "1" {
		t.Errorf("%s long turns have waited, and not 1", got)
	}
	release()
	wait(t, "the other's answer", running)
}
