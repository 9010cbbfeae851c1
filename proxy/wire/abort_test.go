package wire

import (
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// C134: an answer to an abort goes nowhere, and an answer that merely talks of aborts is one like any other. The captured
// answers are whole; what SGLang makes of an abort differs from them in the members named here.
func TestAnswersToAbortsAreToldFromAnswers(t *testing.T) {
	const dir = "sglang-0.5.23/"
	chat, messages, responses := string(captured(t, dir+"chat.http")), string(captured(t, dir+"messages.http")), string(captured(t, dir+"responses.http"))
	talk := func(body, from string) string {
		return change(t, body, from, `{\"finish_reason\":\"abort\"} \"status\":\"failed\" abort`)
	}
	for _, c := range []struct {
		what   string
		family prompt.Family
		body   string
		want   Ending
	}{
		{"chat", prompt.Chat, chat, EndedWhole},
		{"chat aborted", prompt.Chat, change(t, chat, `"finish_reason":"length"`, `"finish_reason":"abort"`), EndedAborted},
		{"chat about aborts", prompt.Chat, `{"choices":[{"index":0,"message":{"content":"{\"finish_reason\":\"abort\"}"},"finish_reason":"stop"}]}`, EndedWhole},
		{"second choice aborted", prompt.Completions, `{"choices":[{"text":"a","finish_reason":"stop"}, {"text":"b", "finish_reason" : "abort"}]}`, EndedAborted},
		{"completions", prompt.Completions, `{"choices":[{"text":"abort","finish_reason":"stop"},{"text":"\"abort\"","finish_reason":"length"}],"usage":{}}`, EndedWhole},
		{"no reason", prompt.Chat, `{"choices":[{"message":{},"finish_reason":null}]}`, EndedUnclear},
		{"no choices", prompt.Chat, `{"choices":[]}`, EndedUnclear},
		{"no JSON", prompt.Chat, `<html>`, EndedUnclear},
		{"cut off", prompt.Chat, chat[:len(chat)/3], EndedUnclear},
		{"messages", prompt.Messages, messages, EndedWhole},
		{"messages about aborts", prompt.Messages, talk(messages, "priority"), EndedWhole},
		{"messages, aborted in prefill", prompt.Messages, change(t, change(t, messages, `"stop_reason":"max_tokens"`, `"stop_reason":"end_turn"`), `"input_tokens":12`, `"input_tokens":0`), EndedAborted},
		{"messages, ended or aborted", prompt.Messages, change(t, messages, `"stop_reason":"max_tokens"`, `"stop_reason":"end_turn"`), EndedUnclear},
		{"messages, a tool called", prompt.Messages, change(t, messages, `"stop_reason":"max_tokens"`, `"stop_reason":"tool_use"`), EndedWhole},
		{"messages, all cached", prompt.Messages, `{"stop_reason":"tool_use","usage":{"input_tokens":0,"cache_read_input_tokens":13,"output_tokens":2}}`, EndedWhole},
		{"responses", prompt.Responses, responses, EndedWhole},
		{"responses aborted", prompt.Responses, change(t, responses, `"status":"incomplete"`, `"status":"failed"`), EndedAborted},
		{"responses about aborts", prompt.Responses, talk(responses, "opvs"), EndedWhole},
		{"responses, aborted in prefill by an older version", prompt.Responses, change(t, change(t, responses, `"status":"incomplete"`, `"status":"completed"`), `"input_tokens":12`, `"input_tokens":0`), EndedAborted},
		{"another family", prompt.None, chat, EndedUnclear},
	} {
		if got := EndingOf(c.family, []byte(c.body)); got != c.want {
			t.Errorf("%s: %d, want %d: %.200s", c.what, got, c.want, c.body)
		}
	}
}

// change replaces the last occurrence, which must be there.
func change(t *testing.T, body, from, to string) string {
	t.Helper()
	i := strings.LastIndex(body, from)
	if i < 0 {
		t.Fatalf("%q is not in %.300s", from, body)
	}
	return body[:i] + to + body[i+len(from):]
}

// Nothing in an answer makes it panic, and only whole answers end whole.
func FuzzEnding(f *testing.F) {
	f.Add([]byte(`{"choices":[{"finish_reason":"abort"}]}`))
	f.Add([]byte(`{"stop_reason":"end_turn","usage":{"input_tokens":3}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for family := prompt.None; family <= prompt.Responses; family++ {
			EndingOf(family, body)
		}
	})
}

// An engine that says no under a 200 has not computed anything.
func TestErrorsUnder200(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"no"}}`: true, `{"error":"no"}`: true, `{"id":"r","error":null,"status":"completed"}`: false,
		`{"choices":[{"error":"not here"}]}`: false, `<html>`: true, ``: true, `{"a":1`: true, ` {"a":1}`: false, `[]`: true,
	} {
		if got := SaysError([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
