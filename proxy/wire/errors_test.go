package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

var families = []prompt.Family{prompt.None, prompt.Chat, prompt.Completions, prompt.Messages, prompt.Responses}

func TestErrorBodies(t *testing.T) {
	for _, c := range []struct {
		family  prompt.Family
		status  int
		code    string
		message string
		want    string
	}{
		{prompt.Chat, 404, "model_not_found", "no engine serves \"m\"", `{"error":{"message":"no engine serves \"m\"","type":"not_found_error","param":null,"code":"model_not_found"}}`},
		{prompt.Completions, 400, "", "m", `{"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}}`},
		{prompt.Responses, 429, "queue_full", "m", `{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"queue_full"}}`},
		{prompt.None, 502, "", "m", `{"error":{"message":"m","type":"server_error","param":null,"code":null}}`},
		{prompt.Chat, 401, "", "m", `{"error":{"message":"m","type":"authentication_error","param":null,"code":null}}`},
		{prompt.Chat, 503, "", "m", `{"error":{"message":"m","type":"overloaded_error","param":null,"code":null}}`},
		{prompt.Messages, 400, "x", "m", `{"type":"error","error":{"type":"invalid_request_error","message":"m"}}`},
		{prompt.Messages, 401, "", "m", `{"type":"error","error":{"type":"authentication_error","message":"m"}}`},
		{prompt.Messages, 403, "", "m", `{"type":"error","error":{"type":"permission_error","message":"m"}}`},
		{prompt.Messages, 404, "", "m", `{"type":"error","error":{"type":"not_found_error","message":"m"}}`},
		{prompt.Messages, 413, "", "m", `{"type":"error","error":{"type":"request_too_large","message":"m"}}`},
		{prompt.Messages, 429, "", "m", `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`},
		{prompt.Messages, 500, "", "m", `{"type":"error","error":{"type":"api_error","message":"m"}}`},
		{prompt.Messages, 503, "", "m", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`},
		{prompt.Messages, 529, "", "m", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`},
	} {
		if got := ErrorBody(c.family, c.status, c.code, c.message); string(got) != c.want {
			t.Errorf("%v %d:\n got %s\nwant %s", c.family, c.status, got, c.want)
		}
	}
}

// C044: what a client sees when its stream dies.
func TestErrorEvents(t *testing.T) {
	for _, c := range []struct {
		family prompt.Family
		want   string
	}{
		{prompt.Chat, "data: {\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"param\":null,\"code\":502}}\n\n"},
		{prompt.Messages, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"gone\"}}\n\n"},
	} {
		if got := ErrorEvent(c.family, 502, "", "gone"); string(got) != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.family, got, c.want)
		}
	}

	var s Sniffer
	s.Reset(prompt.Responses)
	body := captured(t, "vllm-0.32.0/responses-stream.http")
	third := bytes.Index(body, []byte("event: response.content_part.added"))
	s.Write(body[:third])
	event := s.ErrorEvent(502, "", "the engine went away")
	if !bytes.HasPrefix(event, []byte("event: response.failed\ndata: {")) {
		t.Fatalf("got %s", event)
	}
	var failed struct {
		Type           string
		SequenceNumber int `json:"sequence_number"`
		Response       map[string]any
	}
	if err := json.Unmarshal(event[bytes.IndexByte(event, '{'):], &failed); err != nil {
		t.Fatal(err)
	}
	if failed.Type != "response.failed" || failed.SequenceNumber != 3 || failed.Response["id"] != "resp_91f29a5f87ca0534" || failed.Response["status"] != "failed" {
		t.Errorf("got %s", event)
	}
	for _, required := range []string{"created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools", "error", "metadata"} {
		if failed.Response[required] == nil {
			t.Errorf("no %s", required)
		}
	}

	s.Write(body[third : third+60])
	if event := s.ErrorEvent(502, "", "m"); !bytes.HasPrefix(event, []byte("\n\nevent: ")) {
		t.Errorf("inside an event: %.40q", event)
	}
}

// Whatever the text, it comes out as valid JSON on one line, bounded, and our own sniffer reads the same error.
func TestErrorsRoundTrip(t *testing.T) {
	for _, message := range []string{"", "plain", "a \"quoted\" \\ back\nnew\rline\x00\x1f", "ä\u2028😀<&>", "bad \xff\xfe bytes", strings.Repeat("ä", 4000)} {
		for _, f := range families {
			for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 502, 503, 504, 529} {
				body := ErrorBody(f, status, "", message)
				if !json.Valid(body) || len(body) > 7*messageLimit {
					t.Fatalf("%v %d: %d bytes %q", f, status, len(body), body)
				}
				event := ErrorEvent(f, status, "", message)
				if bytes.Count(event, []byte("\n\n")) != 1 || bytes.Contains(event, []byte("\r")) || bytes.Contains(event, []byte("[DONE]")) {
					t.Fatalf("%v %d: %q", f, status, event)
				}
				got := sniff(f, event)
				want := status
				switch {
				case f == prompt.Responses && status == 429:
				case f == prompt.Responses: // has few codes
					want = 500
					if status < 500 {
						want = 400
					}
				case status == 529:
					want = 503
				case f == prompt.Messages && status == 502:
					want = 500
				}
				if got.failure.Status != want || got.finished != (f == prompt.Responses) {
					t.Errorf("%v %d %.10q: read %d", f, status, message, got.failure.Status)
				}
				if text := strings.ToValidUTF8(message, "\ufffd"); len(text) < messageLimit && !strings.Contains(message, "\xff\xfe") && got.failure.Message != text {
					t.Errorf("%v %d: %q became %q", f, status, message, got.failure.Message)
				}
			}
		}
	}
}
