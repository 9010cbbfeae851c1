package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// C044: an engine that dies in the middle of an event. The broken event is
// ended, the family's error event follows, and the connection breaks: no client
// may take this for a complete answer.
func TestAnEngineThatDiesInsideAnEvent(t *testing.T) {
	for family, tc := range map[string]struct{ path, whole, part, want string }{
		"chat":        {"/v1/chat/completions", helloEvent, `data: {"choices":[{"index":0,"delta":{"con`, `"error"`},
		"completions": {"/v1/completions", `data: {"choices":[{"index":0,"text":"hello","finish_reason":null}]}` + "\n\n", "data", `"error"`},
		"messages":    {"/v1/messages", "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n", "event: content_block_delta\n", "event: error\ndata: "},
		"responses":   {"/v1/responses", "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"delta\":\"hi\"}\n\n", "event: resp", "event: response.failed\ndata: "},
		"boundary":    {"/v1/chat/completions", helloEvent, "", `"error"`},
	} {
		t.Run(family, func(t *testing.T) {
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
				hijack(w, func(c *net.TCPConn) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
					_, _ = io.WriteString(c, strings.TrimSuffix(chunked(tc.whole+tc.part, 1000), "0\r\n\r\n"))
				})
			})
			p := startProxy(t, "", e)
			got := p.post(tc.path, `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x"}`)
			rest, ok := strings.CutPrefix(got.body, tc.whole+tc.part)
			if !ok || got.err == nil {
				t.Fatalf("the client got %q and ended with %v", got.body, got.err)
			}
			if tc.part != "" {
				if rest, ok = strings.CutPrefix(rest, "\n\n"); !ok {
					t.Errorf("the broken event was not ended before %q", rest)
				}
			}
			if !strings.Contains(rest, tc.want) || strings.Contains(rest, "[DONE]") || !strings.HasSuffix(rest, "\n\n") {
				t.Errorf("after the cut came %q", rest)
			}
			if end := p.metric(`warmring_request_ends_total{end="upstream_reset"}`); end != "1" {
				t.Errorf("%s ends by upstream_reset", end)
			}
		})
	}
}
