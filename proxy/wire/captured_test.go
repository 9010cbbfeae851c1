package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// captured returns the body of a captured answer. Most captures have their body already unchunked.
func captured(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	head, body, found := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !found {
		head, body, found = bytes.Cut(raw, []byte("\n\n"))
	}
	if !found {
		t.Fatalf("%s: no end of headers", path)
	}
	if bytes.Contains(head, []byte("hunked\r\nConnection: close")) {
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body, err = io.ReadAll(response.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return body
}

// seen is everything that a Sniffer says of a stream.
type seen struct {
	committed, finished, aborted bool
	failure                      Failure
	usage                        Usage
	id                           string
	events                       int
}

func result(s *Sniffer) seen {
	failure, _ := s.Failure()
	return seen{s.Committed(), s.Finished(), s.Aborted(), failure, s.Usage(), string(s.ResponseID()), s.Events()}
}

func sniff(f prompt.Family, pieces ...[]byte) seen {
	var s Sniffer
	s.Reset(f)
	for _, p := range pieces {
		s.Write(p)
	}
	return result(&s)
}

const tooLong = "The input (57333 tokens) is longer than the model's context length (32768 tokens)."

// What each captured stream means. first is the text of the event that commits, "" if none does.
var capturedStreams = []struct {
	file   string
	family prompt.Family
	first  string
	want   seen
}{
	{"vllm-0.32.0/chat-stream.http", prompt.Chat, `"delta":{"content":"Put"}`, seen{true, true, false, Failure{}, Usage{12, 0, 4}, "", 7}},
	{"vllm-0.32.0/chat-stream-nousage.http", prompt.Chat, `"delta":{"content":"Put"}`, seen{true, true, false, Failure{}, Usage{-1, -1, -1}, "", 5}},
	{"vllm-0.32.0/chat-stream-tokenids.http", prompt.Chat, `"delta":{"content":"Put"}`, seen{true, true, false, Failure{}, Usage{12, 0, 3}, "", 6}},
	{"vllm-0.32.0/completions-stream.http", prompt.Completions, `"text":" may"`, seen{true, true, false, Failure{}, Usage{2, 0, 4}, "", 6}},
	{"vllm-0.32.0/messages-stream.http", prompt.Messages, "content_block_start", seen{true, true, false, Failure{}, Usage{12, 0, 4}, "", 9}},
	{"vllm-0.32.0/responses-stream.http", prompt.Responses, "response.output_item.added", seen{true, true, false, Failure{}, Usage{12, 0, 4}, "resp_91f29a5f87ca0534", 10}},
	{"sglang-0.5.23/chat-stream.http", prompt.Chat, `"content":" 5"`, seen{true, true, false, Failure{}, Usage{12, 0, 5}, "", 9}},
	{"sglang-0.5.23/chat-stream-nousage.http", prompt.Chat, `"content":" ="`, seen{true, true, false, Failure{}, Usage{-1, -1, -1}, "", 6}},
	{"sglang-0.5.23/completions-stream.http", prompt.Completions, `"text":"Stmt"`, seen{true, true, false, Failure{}, Usage{2, 0, 5}, "", 7}},
	{"sglang-0.5.23/messages-stream.http", prompt.Messages, "content_block_start", seen{true, true, false, Failure{}, Usage{12, -1, 5}, "", 10}},
	{"sglang-0.5.23/responses-stream.http", prompt.Responses, "response.output_item.added", seen{true, true, false, Failure{}, Usage{12, 0, 3}, "resp_4c27374fd0ba413ab4087c9c182d3266", 10}},
	{"sglang-0.5.23/err-long-messages-stream.http", prompt.Messages, "", seen{false, true, false, Failure{400, tooLong}, Usage{-1, -1, 0}, "", 3}},
	{"sglang-0.5.23/err-long-responses-stream.http", prompt.Responses, "", seen{false, true, false, Failure{400, tooLong}, Usage{-1, -1, -1}, "resp_1d0a0e4b6df3463ca827eb5ac73b7b2b", 3}},
	{"sglang-0.5.23/err-queue-full-chat-stream.http", prompt.Chat, "", seen{false, true, false, Failure{503, "The request queue is full."}, Usage{-1, -1, 0}, "", 3}},
	{"sglang-0.5.23/err-queue-full-messages-stream.http", prompt.Messages, "", seen{false, true, false, Failure{503, "The request queue is full."}, Usage{-1, -1, 0}, "", 3}},
	{"sglang-0.5.23/err-queue-full-responses-stream.http", prompt.Responses, "", seen{false, true, false, Failure{503, "The request queue is full."}, Usage{-1, -1, 0}, "resp_cc3adea1f97f40da9ede6c79d6255af5", 3}},
	{"sglang-0.5.23/err-evicted-by-priority-chat-stream.http", prompt.Chat, "", seen{false, true, false, Failure{503, "The request is aborted by a higher priority request."}, Usage{-1, -1, 0}, "", 3}},
	// No family: the first byte commits, an error is seen all the same.
	{"sglang-0.5.23/err-long-generate-stream.http", prompt.None, "data", seen{true, true, false, Failure{400, strings.Replace(tooLong, "57333", "57323", 1)}, Usage{-1, -1, -1}, "", 2}},
	{"sglang-0.5.23/generate-stream.http", prompt.None, "data", seen{true, true, false, Failure{}, Usage{-1, -1, -1}, "", 4}},
	{"sglang-0.5.23/err-queue-full-generate-stream.http", prompt.None, "data", seen{true, true, false, Failure{}, Usage{-1, -1, -1}, "", 2}},
}

func TestEveryCapturedStreamIsUnderstood(t *testing.T) {
	for _, c := range capturedStreams {
		t.Run(c.file, func(t *testing.T) {
			body := captured(t, c.file)
			if got := sniff(c.family, body); got != c.want {
				t.Errorf("whole:\n got %+v\nwant %+v", got, c.want)
			}
			// Byte by byte: the commit comes with the end of its event, not before.
			var s Sniffer
			s.Reset(c.family)
			at := len(body)
			for i := range body {
				if s.Write(body[i : i+1]); s.Committed() {
					at = i + 1
					break
				}
			}
			if c.first == "" && at != len(body) || c.first != "" && at == len(body) {
				t.Fatalf("committed after %d of %d bytes", at, len(body))
			}
			if c.family == prompt.None {
				if at != 1 {
					t.Errorf("no family, but committed after %d bytes", at)
				}
				return
			}
			if i := bytes.Index(body, []byte(c.first)); c.first != "" && (at < i || bytes.Count(body[i:at], []byte("\n\n")) != 1) {
				t.Errorf("committed by %q", body[:at])
			}
			// After the commit, as a whole, and in every cut into two.
			for i := 0; i <= len(body); i++ {
				if got := sniff(c.family, body[:i], body[i:]); got != c.want {
					t.Fatalf("cut at %d:\n got %+v\nwant %+v", i, got, c.want)
				}
			}
		})
	}
}

// All captured streams mean the same with other line ends (C049) and behind a byte order mark.
func TestCapturedStreamsInOtherLineEnds(t *testing.T) {
	for _, c := range capturedStreams {
		body := captured(t, c.file)
		for name, variant := range lineEndVariants(body) {
			if got := sniff(c.family, variant); got != c.want {
				t.Errorf("%s %s:\n got %+v\nwant %+v", c.file, name, got, c.want)
			}
			for size := 1; size < 40; size++ {
				if got := sniff(c.family, cut(variant, size)...); got != c.want {
					t.Fatalf("%s %s in pieces of %d:\n got %+v\nwant %+v", c.file, name, size, got, c.want)
				}
			}
		}
	}
}

func lineEndVariants(body []byte) map[string][]byte {
	lf := string(body)
	return map[string][]byte{
		"CRLF":           []byte(strings.ReplaceAll(lf, "\n", "\r\n")),
		"CR":             []byte(strings.ReplaceAll(lf, "\n", "\r")),
		"mixed":          []byte(strings.ReplaceAll(lf, "\n\n", "\r\n\r")),
		"BOM":            []byte("\xef\xbb\xbf" + lf),
		"no space":       []byte(strings.ReplaceAll(strings.ReplaceAll(lf, "data: ", "data:"), "event: ", "event:")),
		"comments":       []byte(": hello\n\n" + strings.ReplaceAll(lf, "data: {", ": still working\nid: 7\nretry: 100\ndata: {")),
		"two data lines": []byte(strings.ReplaceAll(lf, `,"`, ",\ndata: \"")),
	}
}

func cut(b []byte, size int) (pieces [][]byte) {
	for len(b) > size {
		pieces = append(pieces, b[:size])
		b = b[size:]
	}
	return append(pieces, b)
}

func TestEveryCapturedAnswerIsRead(t *testing.T) {
	for _, c := range []struct {
		file   string
		family prompt.Family
		want   Usage
		id     string
	}{
		{"vllm-0.32.0/chat-json.http", prompt.Chat, Usage{12, 0, 4}, ""},
		{"vllm-0.32.0/chat-priority.http", prompt.Chat, Usage{12, 0, 2}, ""},
		{"vllm-0.32.0/completions-json.http", prompt.Completions, Usage{2, 0, 4}, ""},
		{"vllm-0.32.0/messages-json.http", prompt.Messages, Usage{12, 0, 4}, ""},
		{"vllm-0.32.0/messages-count.http", prompt.Messages, Usage{-1, -1, -1}, ""},
		{"vllm-0.32.0/responses-json.http", prompt.Responses, Usage{12, 0, 4}, "resp_b780807eb9082260"},
		{"vllm-0.32.0/error-toolong.http", prompt.Chat, Usage{-1, -1, -1}, ""},
		{"sglang-0.5.23/chat.http", prompt.Chat, Usage{12, 0, 5}, ""},
		{"sglang-0.5.23/chat-rid.http", prompt.Chat, Usage{12, 0, 2}, ""},
		{"sglang-0.5.23/err-model-chat.http", prompt.Chat, Usage{11, 0, 2}, ""},
		{"sglang-0.5.23/messages.http", prompt.Messages, Usage{12, -1, 5}, ""},
		{"sglang-0.5.23/responses.http", prompt.Responses, Usage{12, 0, 3}, "resp_c682a1ef09c749a6884aa179588ff01e"},
		{"sglang-0.5.23/err-queue-full-chat.http", prompt.Chat, Usage{-1, -1, -1}, ""},
	} {
		body := captured(t, c.file)
		usage, id := ReadAnswer(c.family, body)
		if usage != c.want || string(id) != c.id {
			t.Errorf("%s: %+v %q, want %+v %q", c.file, usage, id, c.want, c.id)
		}
	}
}
