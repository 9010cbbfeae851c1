package wire

import (
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// C046, C048, C057: an error inside a 200, in all the shapes that engines and gateways give it.
func TestErrorsInsideAStream(t *testing.T) {
	for _, c := range []struct {
		family prompt.Family
		event  string
		want   Failure
	}{
		{prompt.Chat, `{"choices":[],"error":{"code":502,"message":"worker full"}}`, Failure{502, "worker full"}},       // C046
		{prompt.Chat, `{"error":{"type":"overloaded_error","message":"busy"}}`, Failure{503, "busy"}},                   // C048
		{prompt.Chat, `{"error":{"code":400,"message":"too long","type":"BadRequestError"}}`, Failure{400, "too long"}}, // C057
		{prompt.Chat, `{"error":{"object":"error","message":"m","type":"InternalServerError","param":null,"code":500}}`, Failure{500, "m"}},
		{prompt.Chat, `{"error":{"message":"m","type":"503","code":"503"}}`, Failure{503, "m"}},
		{prompt.Chat, `{"error":{"message":"m","code":"model_not_found","type":"invalid_request_error"}}`, Failure{404, "m"}},
		{prompt.Chat, `{"error":{"message":"m","type":"invalid_request_error","code":"context_length_exceeded"}}`, Failure{400, "m"}},
		{prompt.Chat, `{"error":{"message":"m","type":"server_error","code":"rate_limit_exceeded"}}`, Failure{429, "m"}},
		{prompt.Chat, `{"error":{"message":"m","type":"exceed_context_size_error","code":400}}`, Failure{400, "m"}},
		{prompt.Chat, `{"error":{"message":"m","status_code":429}}`, Failure{429, "m"}},
		{prompt.Chat, `{"error":{"message":"m","code":7}}`, Failure{500, "m"}},
		{prompt.Chat, `{"error":{"message":"context length","code":500}}`, Failure{500, "context length"}}, // a number is believed
		{prompt.Chat, `{"error":{}, "choices":[]}`, Failure{}},
		{prompt.Chat, `{"error":null,"choices":[]}`, Failure{}},
		{prompt.Chat, `{"error":"Unauthorized"}`, Failure{401, "Unauthorized"}},
		{prompt.Chat, `{"error":"it \"broke\" \ud83d\ude00"}`, Failure{500, "it \"broke\" 😀"}},
		{prompt.Chat, `{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}`, Failure{503, "The request queue is full."}},
		{prompt.Chat, `error|{"error":{"message":"m","code":429}}`, Failure{429, "m"}},
		{prompt.Chat, `error|{"message":"m","code":429}`, Failure{429, "m"}},
		{prompt.Completions, `{"error":{"message":"m","type":"SERVICE_UNAVAILABLE","param":null,"code":null}}`, Failure{503, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, Failure{503, "busy"}},
		{prompt.Messages, `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`, Failure{429, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"authentication_error","message":"m"}}`, Failure{401, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"permission_error","message":"m"}}`, Failure{403, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"not_found_error","message":"m"}}`, Failure{404, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"request_too_large","message":"m"}}`, Failure{413, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"invalid_request_error","message":"m"}}`, Failure{400, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"api_error","message":"m"}}`, Failure{500, "m"}},
		{prompt.Messages, `error|{"type":"error","error":{"type":"internal_error","message":"m"}}`, Failure{500, "m"}},
		{prompt.Messages, `error|what`, Failure{500, ""}},
		{prompt.Responses, `response.failed|{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"m"}}}`, Failure{500, "m"}},
		{prompt.Responses, `response.failed|{"type":"response.failed","response":{"id":"r","error":{"code":"rate_limit_exceeded","message":"m"}}}`, Failure{429, "m"}},
		{prompt.Responses, `error|{"type":"error","code":"server_error","message":"m","param":null,"sequence_number":2}`, Failure{500, "m"}},
		{prompt.Responses, `error|{"type":"error","error":{"type":"invalid_request_error","message":"m"}}`, Failure{400, "m"}},
	} {
		got := sniff(c.family, stream(c.event))
		if got.failure != c.want || got.committed {
			t.Errorf("%v %s: %+v, committed %v; want %+v", c.family, c.event, got.failure, got.committed, c.want)
		}
	}
}

// The first error is kept; before the commit it is the end of it, after the commit it is noted beside.
func TestErrorBeforeAndAfterTheCommit(t *testing.T) {
	first, second := `{"error":{"code":503,"message":"first"}}`, `{"error":{"code":400,"message":"second"}}`
	got := sniff(prompt.Chat, stream(roleOnly, first, second, delta(`"content":"x"`), "[DONE]"))
	if got.committed || got.failure != (Failure{503, "first"}) || !got.finished {
		t.Errorf("before: %+v", got)
	}
	got = sniff(prompt.Chat, stream(roleOnly, delta(`"content":"x"`), first, second, "[DONE]"))
	if !got.committed || got.failure != (Failure{503, "first"}) {
		t.Errorf("after: %+v", got)
	}
	// Gateways put the error beside a choice.
	got = sniff(prompt.Chat, stream(delta(`"content":"x"`), `{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"gone"}}`))
	if !got.committed || got.failure != (Failure{502, "gone"}) {
		t.Errorf("beside a choice: %+v", got)
	}
	got = sniff(prompt.Chat, stream(roleOnly, `{"choices":[{"delta":{},"finish_reason":"error"}]}`, "[DONE]"))
	if got.committed || got.failure != (Failure{500, ""}) {
		t.Errorf("finish_reason error alone: %+v", got)
	}
}

func TestMessagesOfErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	got := sniff(prompt.Chat, stream(`{"error":{"code":500,"message":"`+long+`"}}`)).failure.Message
	if len(got) > messageLimit || !strings.HasPrefix(long, got) || len(got) < messageLimit-2 {
		t.Errorf("%d bytes", len(got))
	}
	escaped := strings.Repeat(`\u00e4`, 2700)
	got = sniff(prompt.Chat, stream(`{"error":{"code":500,"message":"`+escaped+`"}}`)).failure.Message
	if len(got) > messageLimit || strings.Trim(got, "ä") != "" || len(got) < messageLimit-20 {
		t.Errorf("escaped: %d bytes %q", len(got), got[max(0, len(got)-20):])
	}
}
