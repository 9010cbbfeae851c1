package wire

import (
	"bytes"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// benchmarkEvents writes the same event over and over into one stream whose beginning has been read.
func benchmarkEvents(b *testing.B, f prompt.Family, file, event string) {
	body := captured(b, file)
	i := bytes.Index(body, []byte(event))
	start := 0
	if j := bytes.LastIndex(body[:i], []byte("\n\n")); j >= 0 {
		start = j + 2
	}
	end := i + bytes.Index(body[i:], []byte("\n\n")) + 2
	one := body[start:end]
	var s Sniffer
	s.Reset(f)
	s.Write(body[:end])
	if !s.Committed() {
		b.Fatal("not committed")
	}
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		s.Write(one)
	}
}

func BenchmarkSnifferChatDelta(b *testing.B) {
	benchmarkEvents(b, prompt.Chat, "vllm-0.32.0/chat-stream.http", `"delta":{"content":"Put"}`)
}

func BenchmarkSnifferChatDeltaSGLang(b *testing.B) {
	benchmarkEvents(b, prompt.Chat, "sglang-0.5.23/chat-stream.http", `"content":" 5"`)
}

func BenchmarkSnifferChatDeltaWithUsage(b *testing.B) {
	benchmarkEvents(b, prompt.Chat, "vllm-0.32.0/chat-stream-tokenids.http", `"delta":{"content":"Put"}`)
}

func BenchmarkSnifferCompletionsDelta(b *testing.B) {
	benchmarkEvents(b, prompt.Completions, "sglang-0.5.23/completions-stream.http", `"text":"Stmt"`)
}

func BenchmarkSnifferMessagesDelta(b *testing.B) {
	benchmarkEvents(b, prompt.Messages, "sglang-0.5.23/messages-stream.http", `"text":" reg"`)
}

func BenchmarkSnifferResponsesDelta(b *testing.B) {
	benchmarkEvents(b, prompt.Responses, "vllm-0.32.0/responses-stream.http", `"delta":"ount"`)
}

// A whole short stream, cut as the network would: Reset, beginning, commit, usage, end.
func BenchmarkSnifferWholeStream(b *testing.B) {
	body := captured(b, "vllm-0.32.0/chat-stream.http")
	pieces := bytes.SplitAfter(body, []byte("\n\n"))
	var s Sniffer
	b.ReportAllocs()
	for b.Loop() {
		s.Reset(prompt.Chat)
		for _, p := range pieces {
			s.Write(p)
		}
	}
}

// An event of 1 MB after the commit, in pieces of 32 KB.
func BenchmarkSnifferLongEvent(b *testing.B) {
	event := []byte(`data: {"choices":[{"delta":{"content":"` + string(bytes.Repeat([]byte("long words "), 95000)) + "\"}}]}\n\n")
	pieces := cut(event, 32<<10)
	var s Sniffer
	s.Reset(prompt.Chat)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pieces {
			s.Write(p)
		}
	}
}

func BenchmarkUsageFilterDelta(b *testing.B) {
	body := captured(b, "vllm-0.32.0/chat-stream.http")
	one := bytes.SplitAfter(body, []byte("\n\n"))[1]
	var f UsageFilter
	dst := make([]byte, 0, 1024)
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		dst = f.Filter(dst[:0], one)
	}
}

func BenchmarkReadAnswer(b *testing.B) {
	body := captured(b, "vllm-0.32.0/responses-json.http")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		ReadAnswer(prompt.Responses, body)
	}
}

func BenchmarkReadAnswerOneMegabyte(b *testing.B) {
	body := captured(b, "vllm-0.32.0/chat-json.http")
	body = bytes.Replace(body, []byte("Put"), bytes.Repeat([]byte("long words "), 95000), 1)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		ReadAnswer(prompt.Chat, body)
	}
}

func BenchmarkRouteOf(b *testing.B) {
	method, path := []byte("POST"), []byte("/v1/chat/completions")
	b.ReportAllocs()
	for b.Loop() {
		RouteOf(method, path)
	}
}
