package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMetricsPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP x_total of a thing\n# TYPE x_total counter\nx_total{engine=\"a\",why=\"one two}\"} 3\nx_total{engine=\"b\"} 4.5 1700000000\nplain 7\nx_total_more 100\n")
	}))
	defer server.Close()
	m, err := Scrape(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got, want float64
	}{{m.Sum("x_total"), 7.5}, {m.Sum("x_total", `engine="a"`), 3}, {m.Sum("plain"), 7}, {m.Sum("absent"), 0}} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if !m.Has("plain") || m.Has("x") {
		t.Error("a name is found by another's beginning")
	}
}

// Stopping a program ends its children too, or a failed test would leave engines behind.
func TestStoppingEndsTheWholeGroup(t *testing.T) {
	dir := t.TempDir()
	p, err := StartProcess(Command{Name: "family", Logs: dir, Args: []string{"sh", "-c", "sleep 60 & echo child $!; trap '' TERM; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	child := 0
	await(t, 5*time.Second, "the child", func() bool {
		if _, number, ok := strings.Cut(p.Tail(1), "child "); ok {
			child, _ = strconv.Atoi(strings.TrimSpace(number))
		}
		return child > 0
	})
	p.Kill()
	await(t, 5*time.Second, "the child's end", func() bool { return dead(child) })
	p.Stop() // once more does no harm
}

// A test binary that is killed runs no clean-up: a guard ends what it started.
func TestAKilledTestLeavesNothingBehind(t *testing.T) {
	if os.Getenv("WARMRING_E2E_VICTIM") != "" { // in the binary to be killed
		if _, err := StartProcess(Command{Name: "left", Logs: t.TempDir(), Args: []string{"sh", "-c", "sleep 60 & echo $! >child; wait"}, Dir: os.Getenv("WARMRING_E2E_VICTIM")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		return
	}
	dir := t.TempDir()
	victim := exec.Command(os.Args[0], "-test.run=^TestAKilledTestLeavesNothingBehind$")
	victim.Env = append(os.Environ(), "WARMRING_E2E_VICTIM="+dir, "TMPDIR="+dir)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer victim.Process.Kill()
	child := 0
	await(t, 10*time.Second, "the child", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "child"))
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child > 0
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	await(t, 5*time.Second, "the child's end", func() bool { return dead(child) })
}

func dead(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may wait for a parent that never asks
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// A program that ends before it is ready is told at once, with what it printed.
func TestAProgramThatEndsEarlyIsTold(t *testing.T) {
	p, err := StartProcess(Command{Name: "early", Logs: t.TempDir(), Args: []string{"sh", "-c", "echo no such model; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	err = p.await(t.Context(), time.Minute, func(ctx context.Context) error { return expectOK(ctx, "http://127.0.0.1:1/health") })
	if err == nil || !strings.Contains(err.Error(), "no such model") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

// The answers of all families are read, whole and as streams; what a stream with status 200 tells of an error too.
func TestAnswersAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body            string
		text, failure         string
		prompt, cached, wrote int
		finished              bool
	}{
		"chat": {"application/json", `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":12,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}`,
			"hi", "", 12, 8, 4, true},
		"chat stream": {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"h\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"i\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
			"hi", "", 12, -1, 4, true},
		"chat stream that is cut": {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"h\"}}]}\n\ndata: {\"error\":{\"message\":\"gone\"}}\n\n",
			"h", `{"message":"gone"}`, -1, -1, -1, false},
		"completions": {"application/json", `{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, "hi", "", 3, -1, 1, true},
		"messages": {"application/json", `{"type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":3,"output_tokens":4,"cache_creation_input_tokens":600,"cache_read_input_tokens":8}}`,
			"hi", "", 611, 8, 4, true},
		"messages stream": {"text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":611,\"output_tokens\":0}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"input_tokens\":3,\"output_tokens\":4,\"cache_creation_input_tokens\":600,\"cache_read_input_tokens\":8}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			"hi", "", 611, 8, 4, true},
		"responses": {"application/json", `{"output":[{"content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":8},"output_tokens":4}}`,
			"hi", "", 12, 8, 4, true},
		"responses stream": {"text/event-stream", "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"hi\"}]}],\"usage\":{\"input_tokens\":12,\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":4}}}\n\n",
			"hi", "", 12, 8, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				fmt.Fprint(w, c.body)
			}))
			defer server.Close()
			a, err := Client{Base: server.URL}.Ask(t.Context(), Chat, Body{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.Text != c.text || a.Failure != c.failure || a.Prompt != c.prompt || a.Cached != c.cached || a.Output != c.wrote || a.Finished != c.finished {
				t.Errorf("got %+v", *a)
			}
		})
	}
}
