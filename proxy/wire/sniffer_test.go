package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// stream writes events: data lines, or "name|data".
func stream(events ...string) []byte {
	var b strings.Builder
	for _, e := range events {
		if name, data, ok := strings.Cut(e, "|"); ok {
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
		} else {
			fmt.Fprintf(&b, "data: %s\n\n", e)
		}
	}
	return []byte(b.String())
}

const roleOnly = `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`

func delta(members string) string {
	return `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}],"usage":null}`
}

// What commits and what does not, event by event.
func TestCommitPoint(t *testing.T) {
	for _, c := range []struct {
		family prompt.Family
		event  string
		commit bool
	}{
		{prompt.Chat, roleOnly, false},
		{prompt.Chat, delta(``), false},
		{prompt.Chat, delta(`"reasoning_content":null,"role":"assistant","content":""`), false},
		{prompt.Chat, delta(`"content":null,"tool_calls":[],"refusal":null,"function_call":null,"audio":null`), false},
		{prompt.Chat, delta(`"content":"x"`), true},
		{prompt.Chat, delta(`"content":" "`), true},
		{prompt.Chat, delta(`"role":"assistant","content":"x"`), true},
		{prompt.Chat, delta(`"reasoning_content":"hm"`), true},
		{prompt.Chat, delta(`"reasoning":"hm"`), true},
		{prompt.Chat, delta(`"refusal":"no"`), true},
		{prompt.Chat, delta(`"tool_calls":[{"index":0,"function":{"name":"ls","arguments":""}}]`), true},
		{prompt.Chat, delta(`"function_call":{"name":"ls"}`), true},
		{prompt.Chat, delta(`"audio":{"id":"a"}`), true},
		{prompt.Chat, delta(`"what_is_new":"x"`), true},
		{prompt.Chat, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, true},
		{prompt.Chat, `{"choices":[{"delta":{},"finish_reason":""}]}`, false},
		{prompt.Chat, `{"choices":[{"delta":{"role":"assistant"}},{"index":1,"delta":{"content":"x"}}]}`, true},
		{prompt.Chat, `{"choices":[{"delta":{"content":""},"token_ids":[17]}]}`, true}, // a token without text yet
		{prompt.Chat, `{"choices":[]}`, false},                                         // C041: metadata before the first text
		{prompt.Chat, `{"choices":null,"usage":{"prompt_tokens":3}}`, false},
		{prompt.Chat, `{"usage":{"prompt_tokens":3,"completion_tokens":1}}`, false},
		{prompt.Chat, `{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}],"prompt_progress":{"total":100,"cache":10,"processed":50,"time_ms":7}}`, false},
		{prompt.Chat, `[DONE]`, false},
		{prompt.Chat, `{"strange":1}`, true},
		{prompt.Chat, `not json at all`, true},
		{prompt.Chat, `{"choices":[{"delta":{"role":"assi`, true},
		{prompt.Chat, `{"choices":[{"text":"x"}]}`, true},
		{prompt.Completions, `{"choices":[{"index":0,"text":"","finish_reason":null}]}`, false},
		{prompt.Completions, `{"choices":[{"index":0,"text":"x","finish_reason":null}]}`, true},
		{prompt.Completions, `{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`, true},
		{prompt.Messages, `message_start|{"type":"message_start","message":{"id":"m","usage":{"input_tokens":3,"output_tokens":0}}}`, false},
		{prompt.Messages, `ping|{"type":"ping"}`, false},
		{prompt.Messages, `{"type":"ping"}`, false},
		{prompt.Messages, `message_stop|{"type":"message_stop"}`, false},
		{prompt.Messages, `content_block_start|{"type":"content_block_start"}`, true},
		{prompt.Messages, `{"type":"content_block_delta","index":0}`, true},
		{prompt.Messages, `message_delta|{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`, true},
		{prompt.Messages, `new_event|{}`, true},
		{prompt.Messages, `?`, true},
		{prompt.Responses, `response.created|{"response":{"id":"r"},"type":"response.created"}`, false},
		{prompt.Responses, `response.queued|{}`, false},
		{prompt.Responses, `{"response":{"id":"r"},"type":"response.in_progress"}`, false},
		{prompt.Responses, `response.output_item.added|{}`, true},
		{prompt.Responses, `response.completed|{"response":{"id":"r"}}`, true},
		{prompt.Responses, `response.incomplete|{"response":{"id":"r"}}`, true},
		{prompt.Responses, `response.of_the_future|{}`, true},
	} {
		if got := sniff(c.family, stream(c.event)); got.committed != c.commit {
			t.Errorf("%v %s: committed %v", c.family, c.event, got.committed)
		}
	}
	if sniff(prompt.Chat, []byte(": ping\n\n:\n\nid: 1\n\nretry: 5\n\nevent: x\n\ndata:\n\ndata\n\n\n\n\r\r\n")).committed {
		t.Error("C051: comments and empty events commit")
	}
	if !sniff(prompt.None, []byte(":")).committed {
		t.Error("no family, but the first byte did not commit")
	}
}

// An engine that was told to stop ends the answer politely: role, finish_reason abort, usage of zeroes, [DONE]. It is
// not an answer, and the zeroes are no usage.
func TestAbortedAnswerIsNoAnswer(t *testing.T) {
	abort := `{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`
	zeroes := `{"choices":[],"usage":{"prompt_tokens":0,"total_tokens":0,"completion_tokens":0,"prompt_tokens_details":null}}`
	got := sniff(prompt.Chat, stream(roleOnly, abort, zeroes, "[DONE]"))
	if want := (seen{finished: true, aborted: true, usage: Usage{-1, -1, 0}, events: 4}); got != want {
		t.Errorf("got %+v", got)
	}
	got = sniff(prompt.Chat, stream(roleOnly, delta(`"content":"x"`), abort, "[DONE]"))
	if !got.aborted || !got.committed {
		t.Errorf("aborted while decoding: %+v", got)
	}
	got = sniff(prompt.Messages, stream(`message_delta|{"type":"message_delta","delta":{"stop_reason":"abort"}}`))
	if !got.aborted || got.committed {
		t.Errorf("messages: %+v", got)
	}
}

// C040, C056, C203: the last usage wins, wherever it stands; nothing is added up, nothing is guessed.
func TestUsageOfStreams(t *testing.T) {
	running := func(n int) string {
		return fmt.Sprintf(`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":16,"completion_tokens":%d,"total_tokens":%d}}`, n, 16+n)
	}
	for name, c := range map[string]struct {
		family prompt.Family
		events []string
		want   Usage
	}{
		"C040 empty choices":  {prompt.Chat, []string{roleOnly, delta(`"content":"a"`), `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]"}, Usage{11, -1, 3}},
		"C040 null choices":   {prompt.Chat, []string{roleOnly, delta(`"content":"a"`), `{"choices":null,"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]"}, Usage{11, -1, 3}},
		"C040 no choices":     {prompt.Chat, []string{roleOnly, delta(`"content":"a"`), `{"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]"}, Usage{11, -1, 3}},
		"C056 in each chunk":  {prompt.Chat, []string{running(1), running(2), running(3), running(4), running(5), "[DONE]"}, Usage{16, -1, 5}},
		"C203 chat":           {prompt.Chat, []string{delta(`"content":"a"`), `{"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":640}}}`}, Usage{700, 640, 3}},
		"C203 spaced":         {prompt.Chat, []string{delta(`"content":"a"`), `{ "choices" : [ ] , "usage" : { "prompt_tokens" : 700 , "completion_tokens" : 3 , "prompt_tokens_details" : { "cached_tokens" : 640 } } }`}, Usage{700, 640, 3}},
		"C203 completions":    {prompt.Completions, []string{`{"choices":[{"text":"a"}]}`, `{"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":640}}}`}, Usage{700, 640, 3}},
		"C203 responses":      {prompt.Responses, []string{`response.completed|{"response":{"id":"r","usage":{"input_tokens":700,"input_tokens_details":{"cached_tokens":640},"output_tokens":3}},"type":"response.completed"}`}, Usage{700, 640, 3}},
		"C203 nothing said":   {prompt.Chat, []string{delta(`"content":"a"`), `{"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":3,"prompt_tokens_details":null}}`}, Usage{700, -1, 3}},
		"C203 nothing at all": {prompt.Chat, []string{delta(`"content":"a"`), `{"choices":[],"usage":null}`}, Usage{-1, -1, -1}},
		"C203 messages, vLLM": {prompt.Messages, []string{
			`message_start|{"type":"message_start","message":{"id":"m","usage":{"input_tokens":700,"output_tokens":0}}}`,
			`message_delta|{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":60,"output_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":640}}`,
		}, Usage{700, 640, 3}},
		"C203 messages, SGLang": {prompt.Messages, []string{
			`message_start|{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1,"cache_read_input_tokens":13005,"output_tokens":0}}}`,
			`message_delta|{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`,
		}, Usage{13006, 13005, 3}},
		"messages, cache written": {prompt.Messages, []string{
			`message_start|{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_creation_input_tokens":100,"cache_read_input_tokens":50,"output_tokens":1}}}`,
		}, Usage{154, 50, 1}},
		"messages, all cached": {prompt.Messages, []string{
			`message_start|{"type":"message_start","message":{"usage":{"input_tokens":0,"cache_read_input_tokens":50}}}`,
		}, Usage{50, 50, -1}},
		"llama.cpp timings":              {prompt.Chat, []string{delta(`"content":"a"`), `{"choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":236,"prompt_n":1,"predicted_n":35,"predicted_ms":3.5}}`}, Usage{237, 236, 35}},
		"usage goes before timings":      {prompt.Chat, []string{`{"choices":[{"delta":{"content":"x"}}],"timings":{"cache_n":236,"prompt_n":1,"predicted_n":35}}`, `{"choices":[],"usage":{"prompt_tokens":300,"completion_tokens":30}}`}, Usage{300, 236, 30}},
		"text that looks like usage":     {prompt.Chat, []string{delta(`"content":"\"usage\":{\"prompt_tokens\":5}"`), delta(`"content":"{\"usage\":{\"prompt_tokens\":5}}"`)}, Usage{-1, -1, -1}},
		"numbers that are none":          {prompt.Chat, []string{`{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":99999999999999999999,"prompt_tokens_details":[7]}}`}, Usage{-1, -1, -1}},
		"fractions as a gateway may put": {prompt.Chat, []string{`{"choices":[],"usage":{"prompt_tokens":5.0,"completion_tokens":"7"}}`}, Usage{5, -1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			body := stream(c.events...)
			if got := sniff(c.family, body); got.usage != c.want || got.failure != (Failure{}) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// C042: events of any length pass through a bounded buffer, commit while they come, and usage is found before,
// inside and behind them.
func TestLongEvents(t *testing.T) {
	for _, size := range []int{sniffLimit - 200, sniffLimit, 70 << 10, 1500 << 10, 20 << 20} {
		filler := strings.Repeat("letters ", size/8)
		body := stream(roleOnly, delta(`"tool_calls":[{"function":{"arguments":"`+filler+`"}}]`), `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`, "[DONE]")
		want := seen{committed: true, finished: true, usage: Usage{11, -1, 3}, events: 4}
		if got := sniff(prompt.Chat, body); got != want {
			t.Errorf("%d: got %+v", size, got)
		}
		var s Sniffer
		s.Reset(prompt.Chat)
		for at, piece := range cut(body, 1000) {
			s.Write(piece)
			if at*1000 > len(roleOnly)+sniffLimit+3000 && !s.Committed() {
				t.Fatalf("%d: not committed after %d bytes", size, at*1000)
			}
		}
		if got := result(&s); got != want {
			t.Errorf("%d in pieces: got %+v", size, got)
		}
		if cap(s.events.data) > sniffLimit+4096 {
			t.Errorf("%d: buffer of %d", size, cap(s.events.data))
		}

		// Usage in the middle of a long final event, as SGLang has it (tools and instructions come behind).
		final := `response.completed|{"type":"response.completed","response":{"id":"r1","output":[{"text":"` + filler +
			`"}],"usage":{"input_tokens":700,"input_tokens_details":{"cached_tokens":640},"output_tokens":3},"tools":[{"usage":{"type":"object"}}],"instructions":"` + filler + `"}}`
		created := `response.created|{"type":"response.created","response":{"id":"r1","usage":null,"instructions":"` + filler + `"}}`
		body = stream(created, final)
		want = seen{committed: true, finished: true, usage: Usage{700, 640, 3}, id: "r1", events: 2}
		for _, pieces := range [][][]byte{{body}, cut(body, 4096), cut(body, 65536), cut(body, 777)} {
			if got := sniff(prompt.Responses, pieces...); got != want {
				t.Errorf("%d: got %+v", size, got)
			}
		}
		if got := sniff(prompt.Responses, stream(created)); got.committed || got.id != "r1" {
			t.Errorf("%d: a long response.created: %+v", size, got)
		}
		failed := `response.failed|{"type":"response.failed","response":{"id":"r1","instructions":"` + filler + `","error":{"code":"server_error","message":"The request queue is full."},"tools":[]}}`
		if got := sniff(prompt.Responses, stream(created, failed)); got.committed || got.failure != (Failure{503, "The request queue is full."}) {
			t.Errorf("%d: a long response.failed: %+v", size, got)
		}
	}
}

// Usage is found wherever the windows of an over-long event happen to end.
func TestUsageAtEveryPlaceOfALongEvent(t *testing.T) {
	for shift := 0; shift < 300; shift++ {
		filler := strings.Repeat("x", sniffLimit-250+shift)
		body := stream(`{"choices":[{"delta":{"content":"` + filler + `"}}],"usage":{"prompt_tokens":12345,"completion_tokens":678,"prompt_tokens_details":{"cached_tokens":910}}}`)
		if got := sniff(prompt.Chat, body); got.usage != (Usage{12345, 910, 678}) {
			t.Fatalf("shift %d: %+v", shift, got.usage)
		}
	}
}

// A last event without its blank line is read by Close, and Close adds nothing else.
func TestEventThatEndsWithTheBody(t *testing.T) {
	for _, end := range []string{"", "\n", "\r", "\r\n"} {
		var s Sniffer
		s.Reset(prompt.Chat)
		s.Write([]byte("data: [DONE]" + end))
		if s.Finished() {
			t.Error("finished before the event's end")
		}
		if s.AtBoundary() {
			t.Error("an open event is no boundary")
		}
		s.Close()
		if !s.Finished() || !s.AtBoundary() || s.Committed() || s.Events() != 1 {
			t.Errorf("%q: %+v", end, result(&s))
		}
		s.Close()
		if s.Events() != 1 {
			t.Errorf("%q: closed twice: %+v", end, result(&s))
		}
	}
}

func TestBoundary(t *testing.T) {
	var s Sniffer
	s.Reset(prompt.Chat)
	for _, step := range []struct {
		bytes string
		at    bool
	}{
		{"", true}, {"d", false}, {"ata: {}", false}, {"\n", false}, {"\n", true}, {": c", false}, {"\r", false}, {"\n", false}, {"\r", true}, {"\n", true},
		{"retry", false}, {": 5\n\n", true}, {"unknown field without colon", false}, {"\n\n", true},
	} {
		s.Write([]byte(step.bytes))
		if s.AtBoundary() != step.at {
			t.Fatalf("after %q: %v", step.bytes, s.AtBoundary())
		}
	}
}

func TestSnifferIsReusable(t *testing.T) {
	var s Sniffer
	s.Reset(prompt.Responses)
	s.Write(stream(`response.failed|{"response":{"id":"r","error":{"message":"m"},"usage":{"input_tokens":3,"output_tokens":1}}}`))
	s.Write([]byte("data: half"))
	s.Reset(prompt.Chat)
	s.Write(stream(delta(`"content":"x"`)))
	if got, want := result(&s), (seen{committed: true, usage: Usage{-1, -1, -1}, events: 1}); got != want {
		t.Errorf("got %+v", got)
	}
}
