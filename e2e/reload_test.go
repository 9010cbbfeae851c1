//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An operator edits the file of a running proxy and sends SIGHUP: an engine joins, another goes while it writes an answer, the
// lanes and the log change. A file with a mistake, and one that needs a restart, end nothing and change nothing.
func TestSIGHUPReadsTheFileAgain(t *testing.T) {
	on := make(chan struct{})
	engine := func(name string) *Engine {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/health":
			case r.URL.Path == "/v1/models":
				fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
			case r.URL.Path == "/v1/chat/completions":
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}`+"\n\n")
				w.(http.Flusher).Flush()
				select {
				case <-on:
				case <-r.Context().Done():
				}
				fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			default:
				http.NotFound(w, r)
			}
		}))
		t.Cleanup(s.Close)
		return &Engine{Process: &Process{Name: name}, URL: s.URL, Model: "m", Kind: "custom"}
	}
	a, b := engine("a"), engine("b")
	w := proxy(t, "", a)
	port, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(shared.logs, "warmring-"+port.Port()+".toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := string(text)
	reload := func(text, result string, nth float64) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(w.Pid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		await(t, 20*time.Second, "the reload to be "+result, func() bool {
			m, err := Scrape(t.Context(), w.Admin+"/metrics")
			return err == nil && m.Sum("warmring_config_reloads_total", result) == nth
		})
	}
	usable := func(engine string, want float64) {
		t.Helper()
		await(t, 20*time.Second, fmt.Sprint("engine ", engine, " to be at ", want), func() bool {
			m, err := Scrape(t.Context(), w.Admin+"/metrics")
			return err == nil && m.Sum("warmring_engine_up", fmt.Sprintf("engine=%q", engine)) == want
		})
	}

	began := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		body := Body{"model": "m", "stream": true, "messages": []Message{{"user", "Write until I say so."}}}
		got, err := Client{Base: w.URL, Began: func(a *Answer) { began <- a.Engine() }}.Ask(t.Context(), Chat, body, nil)
		if err == nil && (!got.Finished || got.Text != "hello") {
			err = fmt.Errorf("status %d, finished %v, text %q, failure %q", got.Status, got.Finished, got.Text, got.Failure)
		}
		done <- err
	}()
	select {
	case home := <-began:
		if home != "a" {
			t.Fatalf("the answer comes from %q", home)
		}
	case err := <-done:
		t.Fatal(err)
	}

	both := first + "[[engine]]\nname = \"b\"\n" + b.EngineLines() + "[lanes]\noff = true\n[log]\nformat = \"json\"\n"
	reload(both, "applied", 1)
	usable("b", 1)
	reload(strings.Replace(both, "[lanes]\noff", "[lanes]\nofff", 1), "invalid", 1)
	reload(strings.Replace(both, "listen = \"127.0.0.1:"+port.Port(), "listen = \"127.0.0.1:1", 1), "refused", 1)
	onlyB := strings.Replace(both, fmt.Sprintf("name = %q\n%s", "a", a.EngineLines()), fmt.Sprintf("name = %q\n%s", "b", b.EngineLines()), 1)
	onlyB = strings.Replace(onlyB, "[[engine]]\nname = \"b\"\n"+b.EngineLines()+"[lanes]", "[lanes]", 1)
	reload(onlyB, "applied", 2)
	usable("a", 0)
	close(on)
	if err := <-done; err != nil {
		t.Errorf("the answer that was being written: %v", err)
	}
	got, err := Client{Base: w.URL}.Ask(t.Context(), Chat, Body{"model": "m", "stream": true, "messages": []Message{{"user", "Who is there?"}}}, nil)
	if err != nil || got.Status != http.StatusOK || got.Engine() != "b" {
		t.Errorf("the next one: %v %+v", err, got)
	}
	for _, line := range []string{
		"configuration applied", "engine b added", "lanes.off false → true", "engine a removed",
		`"file":"` + file + `","line":`, `"key":"lanes.offf"`, `"key":"listen"`,
	} {
		await(t, 10*time.Second, "the log to have "+line, func() bool { // lines are written a moment later
			log, err := os.ReadFile(w.Log)
			return err == nil && strings.Contains(string(log), line)
		})
	}
}
