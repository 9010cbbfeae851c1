package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

func filtered(pieces ...[]byte) string {
	var f UsageFilter
	var out []byte
	for _, p := range pieces {
		out = f.Filter(out, p)
	}
	return string(f.Flush(out))
}

// The captured streams with usage come out exactly as the captured streams without it look: one event shorter.
func TestUsageChunkIsTakenOut(t *testing.T) {
	for _, c := range capturedStreams {
		if c.family != prompt.Chat && c.family != prompt.Completions {
			continue
		}
		body := captured(t, c.file)
		for name, variant := range lineEndVariants(body) {
			want := ""
			dropped := 0
			for _, event := range splitEvents(string(variant)) {
				if strings.Contains(event, `"usage":{`) && (strings.Contains(event, `"choices":[]`)) {
					dropped++
					continue
				}
				want += event
			}
			if dropped > 1 {
				t.Fatalf("%s: %d usage chunks", c.file, dropped)
			}
			for size := 1; size < 400; size++ {
				if got := filtered(cut(variant, size)...); got != want {
					t.Fatalf("%s %s in pieces of %d:\n got %q\nwant %q", c.file, name, size, got, want)
				}
			}
		}
	}
}

// splitEvents cuts behind each blank line, the slow and obvious way.
func splitEvents(s string) (events []string) {
	start, lineStart := 0, 0
	for i := 0; i < len(s); i++ {
		if s[i] != '\n' && s[i] != '\r' {
			continue
		}
		blank := lineStart == i
		if s[i] == '\r' && i+1 < len(s) && s[i+1] == '\n' {
			i++
		}
		lineStart = i + 1
		if blank {
			events = append(events, s[start:lineStart])
			start = lineStart
		}
	}
	return append(events, s[start:])
}

func TestWhatUsageFilterTakesAndLeaves(t *testing.T) {
	for _, c := range []struct {
		event   string
		dropped bool
	}{
		{`{"choices":[],"usage":{"prompt_tokens":1}}`, true},
		{`{"choices":[],"usage":{"prompt_tokens":1},"timings":{"cache_n":1}}`, true},
		{`{"usage":{"prompt_tokens":1},"choices":null}`, true},
		{`{"id":"x","usage":{"prompt_tokens":1}}`, true},
		{`{ "choices" : [ ] , "usage" : { "prompt_tokens" : 1 } }`, true},
		{`{"choices":[],"usage":null}`, false},
		{`{"choices":[]}`, false},
		{`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}`, false},
		{`{"choices": [ {"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}`, false},
		{`{"choices":[],"usage":{"prompt_tokens":1},"error":{"message":"m"}}`, false},
		{`{"choices":[{"delta":{"content":"\"usage\":{"}}]}`, false},
		{`{"choices":[],"usage":{"prompt_tokens":1}`, false},
		{`[DONE]`, false},
	} {
		before, after := ": hi\n\n"+string(stream(roleOnly)), string(stream("[DONE]"))
		want := before + string(stream(c.event)) + after
		if c.dropped {
			want = before + after
		}
		body := before + string(stream(c.event)) + after
		if got := filtered([]byte(body)); got != want {
			t.Errorf("%s:\n got %q", c.event, got)
		}
		if got := filtered([]byte("data: " + c.event)); (got == "") != c.dropped {
			t.Errorf("%s at the end, cut off: %q", c.event, got)
		}
	}
}

// Nothing is held longer than its own event; an event that has a choice or is very long is not held at all.
func TestUsageFilterDoesNotDelay(t *testing.T) {
	var f UsageFilter
	first, second := string(stream(roleOnly)), string(stream(delta(`"content":"x"`)))
	if got := f.Filter(nil, []byte(first+second[:20])); string(got) != first {
		t.Errorf("got %q", got)
	}
	if got := f.Filter(nil, []byte(second[20:])); string(got) != second {
		t.Errorf("the rest: %q", got)
	}
	if got := f.Filter(nil, []byte(`data: {"choices":[{"delta":{"content":"lo`)); len(got) == 0 {
		t.Error("an event with a choice was held")
	}
	if got := f.Filter(nil, []byte(`ng`)); string(got) != "ng" {
		t.Errorf("then: %q", got)
	}
	f.Filter(nil, []byte("\n\n"))

	long := []byte("data: " + strings.Repeat("x", 3*filterLimit))
	var out []byte
	for _, piece := range cut(long, 1000) {
		out = f.Filter(out, piece)
		if cap(f.held) > 2*filterLimit {
			t.Fatalf("holds %d", cap(f.held))
		}
	}
	if !bytes.Equal(out, long) {
		t.Errorf("%d of %d bytes passed", len(out), len(long))
	}
	dst := make([]byte, 0, 1024)
	piece := []byte(second)
	f.Reset()
	if n := testing.AllocsPerRun(100, func() { dst = f.Filter(dst[:0], piece[:33]); dst = f.Filter(dst[:0], piece[33:]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
