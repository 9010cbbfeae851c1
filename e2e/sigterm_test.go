//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// slowWriter is an engine whose answers begin at once and end when told to. It is called custom, which is what it is.
func slowWriter(t *testing.T, on <-chan struct{}) (*Engine, <-chan struct{}) {
	begun := make(chan struct{}, 64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/v1/models":
			fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
		case "/v1/chat/completions":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}`+"\n\n")
			w.(http.Flusher).Flush()
			begun <- struct{}{}
			select {
			case <-on:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return &Engine{Process: &Process{Name: "slow"}, URL: s.URL, Model: "m", Kind: "custom"}, begun
}

// draining starts a proxy with ten answers running.
func draining(t *testing.T, drain string, on <-chan struct{}) (w *Warmring, answers chan error) {
	t.Helper()
	binary, err := shared.build()
	if err != nil {
		t.Fatal(err)
	}
	e, begun := slowWriter(t, on)
	w, err = StartWarmring(t.Context(), Proxy{Binary: binary, Name: "draining", Tables: "[drain]\n" + drain, Logs: shared.logs, Engines: map[string]string{"a": e.EngineLines()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Stop()
		if t.Failed() {
			t.Logf("%s printed last:\n%s", w.Name, w.Tail(30))
		}
	})
	answers = make(chan error, 16)
	for i := range 10 {
		go func() { answers <- turnOf(t.Context(), w, fmt.Sprint("turn ", i)) }()
	}
	for range 10 {
		select {
		case <-begun:
		case err := <-answers:
			t.Fatalf("an answer has ended before it was to: %v", err)
		}
	}
	return w, answers
}

// turnOf asks for one streamed answer, which must come whole.
func turnOf(ctx context.Context, w *Warmring, text string) error {
	got, err := Client{Base: w.URL}.Ask(ctx, Chat, Body{"model": "m", "stream": true, "messages": []Message{{"user", text}}}, nil)
	if err == nil && (got.Status != http.StatusOK || !got.Finished || got.Text != "hello") {
		err = fmt.Errorf("status %d, finished %v, text %q, failure %q", got.Status, got.Finished, got.Text, got.Failure)
	}
	return err
}

func running(w *Warmring) bool {
	select {
	case <-w.Ended():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// C212: SIGTERM with ten answers running. Readiness says 503 while the process is alive and still serves what balancers send
// it; the answers come whole, and then it ends with status 0.
func TestSIGTERMLosesNothing(t *testing.T) {
	on := make(chan struct{})
	w, answers := draining(t, "delay = \"3s\"\nlimit = \"1m\"", on)
	began := time.Now()
	if err := syscall.Kill(w.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, "readiness to turn false", func() bool { return status(w.Admin+"/readyz") == http.StatusServiceUnavailable })
	if got := status(w.Admin + "/healthz"); got != http.StatusOK {
		t.Errorf("liveness says %d", got)
	}
	go func() { answers <- turnOf(t.Context(), w, "sent by a balancer that has not looked yet") }()
	await(t, 20*time.Second, "the delay to pass", func() bool {
		return status(w.URL+"/v1/models") == http.StatusServiceUnavailable
	})
	if after := time.Since(began); after < 3*time.Second {
		t.Errorf("requests were refused after %v, within the delay", after)
	}
	if !running(w) {
		t.Fatal("it did not wait for its answers")
	}
	close(on)
	for range 11 {
		if err := <-answers; err != nil {
			t.Errorf("an answer: %v", err)
		}
	}
	if err := w.Wait(20 * time.Second); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// C212: a second signal ends it at once, whatever runs.
func TestASecondSIGTERMEndsAtOnce(t *testing.T) {
	w, answers := draining(t, "delay = \"1m\"\nlimit = \"10m\"", nil)
	if err := syscall.Kill(w.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, "readiness to turn false", func() bool { return status(w.Admin+"/readyz") == http.StatusServiceUnavailable })
	if !running(w) {
		t.Fatal("the first signal ended it although answers were running")
	}
	await(t, 20*time.Second, "its end, of a minute's delay and ten of limit", func() bool {
		_ = syscall.Kill(w.Pid(), syscall.SIGTERM) // one that follows within a millisecond may count as the first
		return !running(w)
	})
	if err := w.Wait(time.Second); err == nil {
		t.Error("it ended as if all were well")
	}
	for range 10 {
		if err := <-answers; err == nil {
			t.Error("an answer that was cut looks complete to its client")
		}
	}
}
