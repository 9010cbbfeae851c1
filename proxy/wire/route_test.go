package wire

import (
	"fmt"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         Route
	}{
		{"POST", "/v1/chat/completions", Route{prompt.Chat, true, "/v1/chat/completions"}},
		{"POST", "/v1/chat/completions?x=1", Route{prompt.Chat, true, "/v1/chat/completions"}},
		{"POST", "/v1/chat/completions/", Route{prompt.Chat, true, "/v1/chat/completions"}},
		{"POST", "/chat/completions", Route{prompt.Chat, true, "/v1/chat/completions"}},
		{"POST", "/openai/v1/chat/completions", Route{prompt.Chat, true, "/v1/chat/completions"}},
		{"GET", "/v1/chat/completions", Route{prompt.Chat, false, "/v1/chat/completions"}},
		{"POST", "/v1/chat/completions/render", Route{prompt.Chat, false, "/v1/chat/completions/render"}},
		{"POST", "/v1/chat/completions/batch", Route{prompt.Chat, false, "/v1/chat/completions/batch"}},
		{"GET", "/v1/chat/completions/chatcmpl-1", Route{prompt.Chat, false, "/v1/chat/completions/{id}"}},
		{"POST", "/v1/completions", Route{prompt.Completions, true, "/v1/completions"}},
		{"POST", "/v1/completions/render", Route{prompt.Completions, false, "/v1/completions/render"}},
		{"POST", "/v1/messages?beta=true", Route{prompt.Messages, true, "/v1/messages"}},
		{"POST", "/messages", Route{prompt.Messages, true, "/v1/messages"}},
		{"POST", "/anthropic/v1/messages", Route{prompt.Messages, true, "/v1/messages"}},
		{"POST", "/v1/messages/count_tokens?beta=true", Route{prompt.Messages, false, "/v1/messages/count_tokens"}},
		{"POST", "/v1/messages/batches", Route{prompt.Messages, false, "/v1/messages/batches"}},
		{"POST", "/v1/messages/what/ever", Route{prompt.Messages, false, "unmatched"}},
		{"POST", "/v1/responses", Route{prompt.Responses, true, "/v1/responses"}},
		{"GET", "/v1/responses/resp_1", Route{prompt.Responses, false, "/v1/responses/{id}"}},
		{"DELETE", "/v1/responses/resp_1", Route{prompt.Responses, false, "/v1/responses/{id}"}},
		{"POST", "/v1/responses/resp_1/cancel", Route{prompt.Responses, false, "/v1/responses/{id}/cancel"}},
		{"GET", "/v1/responses/resp_1/input_items", Route{prompt.Responses, false, "/v1/responses/{id}/input_items"}},
		{"POST", "/v1/responses/compact", Route{prompt.Responses, false, "/v1/responses/compact"}},
		{"GET", "/v1/responses/a/b/cancel", Route{prompt.Responses, false, "unmatched"}},
		{"GET", "/v1/models", Route{prompt.None, false, "/v1/models"}},
		{"GET", "/v1/models/org/name", Route{prompt.None, false, "/v1/models/{id}"}},
		{"POST", "/v1/embeddings", Route{prompt.None, false, "/v1/embeddings"}},
		{"POST", "/tokenize", Route{prompt.None, false, "/tokenize"}},
		{"POST", "/v1/completionsx", Route{prompt.None, false, "unmatched"}},
		{"POST", "/somewhere/v1/chat/completions", Route{prompt.None, false, "unmatched"}},
		{"GET", "/", Route{prompt.None, false, "unmatched"}},
		{"GET", "", Route{prompt.None, false, "unmatched"}},
	} {
		if got := RouteOf([]byte(c.method), []byte(c.path)); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.method, c.path, got, c.want)
		}
		if got := FamilyOf([]byte(c.path)); got != c.want.Family {
			t.Errorf("%s: family %v", c.path, got)
		}
	}
}

// C210, C211: whatever a scanner asks for, the labels stay few.
func TestTemplatesAreBounded(t *testing.T) {
	templates := map[string]bool{}
	for i := range 10000 {
		for _, path := range []string{"/v1/responses/%d", "/v1/x-%d", "/v1/models/m%d", "/v1/responses/%d/cancel", "/v1/chat/completions/%d", "/%d/%d", "/v1/messages/%d"} {
			templates[RouteOf([]byte("GET"), fmt.Appendf(nil, path, i)).Template] = true
		}
	}
	if len(templates) != 5 {
		t.Errorf("%d templates: %v", len(templates), templates)
	}
}

func TestResponseIDInAPath(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/responses/resp_1": "resp_1", "/v1/responses/resp_1/cancel?x=/responses/y": "resp_1", "/responses/r/input_items": "r", "/v1/responses/r?a=b": "r",
		"/v1/responses": "", "/v1/responses/compact": "", "/v1/chat/completions/c": "", "/v1/responses/a/b": "",
	} {
		if got := string(ResponseIDOf([]byte(path))); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestRouteOfDoesNotAllocate(t *testing.T) {
	method, path := []byte("POST"), []byte("/v1/responses/resp_1/cancel")
	if n := testing.AllocsPerRun(100, func() { RouteOf(method, path); ResponseIDOf(path) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
