package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// server.max_connections: one connection too many waits for its turn; it is not
// turned away.
func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	release := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "{}")
	})
	p := startProxy(t, "server.max_connections = 2", e)
	var all sync.WaitGroup
	for i := range 5 {
		c := p.dial()
		all.Go(func() {
			c.send(rawPost("/v1/chat/completions", chat(fmt.Sprint("hi ", i)), "Connection: close"))
			if got := c.receive(); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
			_ = c.Close()
		})
	}
	eventually(t, "two to run", func() bool { return len(e.got()) == 2 })
	close(release)
	all.Wait()
	// One that waits when the proxy stops does not hold it up.
	a, b, c := p.dial(), p.dial(), p.dial()
	a.send("x")
	b.send("x")
	c.send("x")
	began := time.Now()
	p.shutdown()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// 500 streams at once, most of them silent: all of them end whole, and nothing
// is left.
func TestManyStreamsAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("many connections")
	}
	const streams = 500
	release := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		events(w, helloEvent)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		events(w, stopEvent, doneEvent)
	})
	p := startProxy(t, "", e)
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			c := p.dial()
			c.send(rawPost("/v1/chat/completions", chatStream(fmt.Sprint("hi ", i)), "Connection: close"))
			if got := c.receive(); got.status != 200 || got.err != nil || !strings.HasSuffix(got.body, doneEvent) {
				t.Errorf("%d %v", got.status, got.err)
			}
		})
	}
	eventually(t, "all to run", func() bool { return len(e.got()) == streams })
	close(release)
	all.Wait()
}
