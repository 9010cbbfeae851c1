package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
)

// shape is what a client sees of an answer: its status and the events' names with their members.
// Events of one shape in a row count once, since the number of tokens does not matter.
func shape(t *testing.T, status int, kind string, body []byte) []string {
	t.Helper()
	list := []string{fmt.Sprint(status)}
	if !strings.HasPrefix(kind, "text/event-stream") {
		return append(list, members(t, body))
	}
	for _, frame := range strings.Split(string(body), "\n\n") {
		name, data := "", ""
		for _, line := range strings.Split(frame, "\n") {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = v
			}
		}
		if data == "" {
			continue
		}
		one := name + " " + data
		if data != "[DONE]" {
			one = name + " " + members(t, []byte(data))
		}
		if list[len(list)-1] != one {
			list = append(list, one)
		}
	}
	return list
}

// members lists the paths of all members of a JSON value.
func members(t *testing.T, b []byte) string {
	t.Helper()
	if len(bytes.TrimSpace(b)) == 0 {
		return "(empty)"
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("not JSON: %v in %q", err, b)
	}
	var paths []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, v := range v {
				walk(path+"."+k, v)
			}
		case []any:
			for _, v := range v {
				walk(path+"[]", v)
			}
			if len(v) == 0 {
				paths = append(paths, path)
			}
		case nil:
			paths = append(paths, path+"=null")
		default:
			paths = append(paths, path)
		}
	}
	walk("", v)
	sort.Strings(paths)
	return strings.Join(slices.Compact(paths), " ")
}

// captured reads a fixture; bodies that were captured chunked are joined.
func captured(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + path + ".http")
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		head, body, _ = bytes.Cut(raw, []byte("\n\n"))
	}
	status, kind := 0, ""
	for i, line := range strings.Split(strings.ReplaceAll(string(head), "\r", ""), "\n") {
		if i == 0 {
			fmt.Sscanf(line, "HTTP/1.1 %d", &status)
		}
		if v, ok := strings.CutPrefix(line, "content-type: "); ok {
			kind = v
		}
	}
	return shape(t, status, kind, body)
}

func send(t *testing.T, url, path, body string) (status int, kind string, answer []byte) {
	t.Helper()
	method := "POST"
	if body == "" {
		method = "GET"
	}
	req, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer
}

func start(t *testing.T, opt ServerOptions) *Server {
	t.Helper()
	if opt.Speed == 0 {
		opt.Speed = 100
	}
	s, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestAnswersLookLikeTheCapturedOnes(t *testing.T) {
	const (
		hello  = `"messages":[{"role":"user","content":"hello"}]`
		opts   = `"stream":true,"stream_options":{"include_usage":true}`
		tiny   = `{"model":"tiny",`
		long4k = `"messages":[{"role":"user","content":"`
	)
	long := long4k + strings.Repeat("long ", 40_000) + `"}]`
	engines := map[Mode]*Server{
		VLLM:   start(t, ServerOptions{Options: Options{Mode: VLLM, BlockTokens: 32, MaxModelLen: 32768}, Models: []string{"tiny"}}),
		SGLang: start(t, ServerOptions{Options: Options{Mode: SGLang, MaxModelLen: 32768}, Models: []string{"tiny"}}),
	}
	for _, c := range []struct {
		mode                Mode
		fixture, path, body string
	}{
		{VLLM, "chat-json", "/v1/chat/completions", tiny + hello + `,"max_tokens":4}`},
		{VLLM, "chat-stream", "/v1/chat/completions", tiny + hello + `,"max_tokens":4,` + opts + `}`},
		{VLLM, "chat-stream-nousage", "/v1/chat/completions", tiny + hello + `,"max_tokens":4,"stream":true}`},
		{VLLM, "completions-json", "/v1/completions", tiny + `"prompt":"hello you","max_tokens":4}`},
		{VLLM, "completions-stream", "/v1/completions", tiny + `"prompt":"hello you","max_tokens":4,` + opts + `}`},
		{VLLM, "messages-json", "/v1/messages", tiny + hello + `,"max_tokens":4}`},
		{VLLM, "messages-stream", "/v1/messages", tiny + hello + `,"max_tokens":4,"stream":true}`},
		{VLLM, "messages-count", "/v1/messages/count_tokens", tiny + hello + `}`},
		{VLLM, "responses-json", "/v1/responses", tiny + `"input":"hello","max_output_tokens":4}`},
		{VLLM, "responses-stream", "/v1/responses", tiny + `"input":"hello","max_output_tokens":4,"stream":true}`},
		{VLLM, "models", "/v1/models", ""},
		{VLLM, "version", "/version", ""},
		{VLLM, "tokenize", "/tokenize", tiny + hello + `}`},
		{VLLM, "error-json", "/v1/chat/completions", `{"model":"tiny",`},
		{VLLM, "error-missing", "/v1/chat/completions", `{"model":"tiny"}`},
		{VLLM, "error-model", "/v1/chat/completions", `{"model":"nope",` + hello + `}`},
		{VLLM, "error-path", "/v1/nothing", ""},
		{VLLM, "error-method", "/v1/chat/completions", ""},
		{VLLM, "error-toolong", "/v1/chat/completions", tiny + long + `}`},
		{VLLM, "error-toolong-messages", "/v1/messages", tiny + hello + `,"max_tokens":99999}`},
		{SGLang, "chat", "/v1/chat/completions", tiny + hello + `,"max_tokens":5}`},
		{SGLang, "chat-stream", "/v1/chat/completions", tiny + hello + `,"max_tokens":5,` + opts + `}`},
		{SGLang, "chat-stream-nousage", "/v1/chat/completions", tiny + hello + `,"max_tokens":3,"stream":true}`},
		{SGLang, "completions-stream", "/v1/completions", tiny + `"prompt":"hello you","max_tokens":5,` + opts + `}`},
		{SGLang, "messages", "/v1/messages", tiny + `"messages":[{"role":"user","content":"other"}],"max_tokens":5}`},
		{SGLang, "messages-stream", "/v1/messages", tiny + `"messages":[{"role":"user","content":"more"}],"max_tokens":5,"stream":true}`},
		{SGLang, "messages-count", "/v1/messages/count_tokens", tiny + hello + `}`},
		{SGLang, "responses", "/v1/responses", tiny + `"input":"hello","max_output_tokens":5}`},
		{SGLang, "responses-stream", "/v1/responses", tiny + `"input":"hello","max_output_tokens":5,"stream":true}`},
		{SGLang, "models", "/v1/models", ""},
		{SGLang, "models-unknown", "/v1/models/none", ""},
		{SGLang, "loads", "/v1/loads", ""},
		{SGLang, "tokenize", "/tokenize", tiny + `"prompt":"hello"}`},
		{SGLang, "err-json-chat", "/v1/chat/completions", `{"model":"tiny",`},
		{SGLang, "err-json-messages", "/v1/messages", `{"model":"tiny",`},
		{SGLang, "err-nomessages", "/v1/chat/completions", `{"model":"tiny"}`},
		{SGLang, "err-path", "/version", ""},
		{SGLang, "err-long-chat", "/v1/chat/completions", tiny + long + `}`},
		{SGLang, "err-long-messages", "/v1/messages", tiny + long + `,"max_tokens":4}`},
		{SGLang, "err-long-messages-stream", "/v1/messages", tiny + long + `,"max_tokens":4,"stream":true}`},
		{SGLang, "err-long-responses-stream", "/v1/responses", tiny + `"input":"` + strings.Repeat("long ", 40_000) + `","stream":true}`},
	} {
		t.Run(c.mode.String()+"/"+c.fixture, func(t *testing.T) {
			engines[c.mode].Engine().ResetCache()
			want := captured(t, c.mode.String()+"/"+c.fixture)
			status, kind, body := send(t, engines[c.mode].URL(), c.path, c.body)
			got := shape(t, status, kind, body)
			if !slices.Equal(got, want) {
				t.Errorf("%s differs\n got %s\nwant %s", c.fixture, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		})
	}
}
