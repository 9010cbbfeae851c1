package proxy

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// C017, C019: an alias changes the model's name in the body and not one byte
// besides, each time in the same way.
func TestAnAliasIsSplicedIn(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	e.models = `{"object":"list","data":[{"id":"org/m-7b"}]}`
	p := startProxy(t, "models.alias = { small = \"org/m-7b\" }", e)
	for body, want := range map[string]string{
		`{"model":"small","prompt":"tide","seed":9007199254740995,"x":1e400,"y":0.10}`: `{"model":"org/m-7b","prompt":"tide","seed":9007199254740995,"x":1e400,"y":0.10}`,
		"{ \"prompt\" : \"small\", \"model\" :\t\"small\" }\n":                         "{ \"prompt\" : \"small\", \"model\" :\t\"org/m-7b\" }\n",
		`{"model":"org/m-7b","prompt":"x"}`:                                            `{"model":"org/m-7b","prompt":"x"}`,
	} {
		for range 25 {
			if got := p.post("/v1/completions", body); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			calls := e.got()
			if got := calls[len(calls)-1].body; got != want {
				t.Fatalf("engine got  %s\nwant        %s", got, want)
			}
		}
	}
	// The list of models has the alias, too.
	if got := p.get("/v1/models"); !strings.Contains(got.body, `"id":"small"`) {
		t.Errorf("models: %s", got.body)
	}
}

// C173: a default model serves names that nobody knows; without it they are 404
// and the known ones are listed.
func TestUnknownModelNames(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "models.default = \"m\"", e)
	body := `{"model":"helper-small-20250101","messages":[]}`
	if got := p.post("/v1/chat/completions", body); got.status != 200 || e.got()[0].body != strings.Replace(body, "helper-small-20250101", "m", 1) {
		t.Errorf("%d %s", got.status, got.body)
	}
	p = startProxy(t, "", newFakeEngine(t, "b", nil))
	for _, f := range families {
		got := p.post(f.path, strings.Replace(f.body, `"m"`, `"main-x"`, 1))
		if got.status != 404 || !strings.Contains(got.body, "main-x") || !strings.Contains(got.body, "known: m") || (f.name == "messages") != strings.Contains(got.body, `{"type":"error"`) {
			t.Errorf("%s: %d %s", f.name, got.status, got.body)
		}
	}
}

// C028, item 5: usage is asked for where it may be, and a client that did not ask
// never sees it.
func TestUsageIsAskedForAndTakenOut(t *testing.T) {
	for _, tc := range []struct{ name, body, engine string }{
		{"no stream", `{"model":"m","messages":[]}`, ""},
		{"stream false", `{"model":"m","stream":false,"messages":[]}`, ""},
		{"stream null", `{"model":"m","stream":null,"messages":[]}`, ""},
		{"stream", `{"model":"m","stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}`},
		{"stream, spaced", "{ \n\"stream\" : true , \"messages\":[],\"model\":\"m\"}", "{\"stream_options\":{\"include_usage\":true}, \n\"stream\" : true , \"messages\":[],\"model\":\"m\"}"},
		{"options null", `{"model":"m","stream":true,"stream_options":null,"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`},
		{"options empty", `{"model":"m","stream":true,"stream_options":{ },"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`},
		{"asked by the client", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`, ""},
		{"declined by the client", `{"model":"m","stream":true,"stream_options":{"include_usage":false},"messages":[]}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			e.answer = func(w http.ResponseWriter, r *http.Request) {
				calls := e.got()
				sent := calls[len(calls)-1].body
				if !strings.Contains(sent, "true") { // stream_options without a stream are an error
					if strings.Contains(sent, "stream_options") {
						w.WriteHeader(400)
					}
					return
				}
				events(w, roleEvent, helloEvent, stopEvent)
				if strings.Contains(sent, `"include_usage":true`) {
					events(w, usageEvent)
				}
				events(w, doneEvent)
			}
			e.toml = "kind = \"vllm\""
			p := startProxy(t, "", e)
			got := p.post("/v1/chat/completions", tc.body)
			want := tc.body
			if tc.engine != "" {
				want = tc.engine
			}
			if sent := e.got()[0].body; got.status != 200 || sent != want {
				t.Fatalf("%d, engine got %s\nwant %s", got.status, sent, want)
			}
			streamed := strings.Contains(tc.body, `true`)
			client := ""
			if streamed {
				client = roleEvent + helloEvent + stopEvent + doneEvent
				if tc.name == "asked by the client" {
					client = roleEvent + helloEvent + stopEvent + usageEvent + doneEvent
				}
			}
			if got.body != client {
				t.Errorf("client got %q", got.body)
			}
			if asked := strings.Contains(want, `"include_usage":true`); asked != (p.metric("warmring_cached_tokens_total") == "12") {
				t.Errorf("cached tokens %s", p.metric("warmring_cached_tokens_total"))
			}
		})
	}
}

// An own backend may not know stream_options: it is left alone.
func TestUsageIsNotAskedOfOwnBackends(t *testing.T) {
	e := streamingEngine(t, "a", helloEvent, stopEvent, doneEvent)
	e.toml = "kind = \"custom\""
	p := startProxy(t, "", e)
	p.post("/v1/chat/completions", families[0].stream)
	if got := e.got()[0].body; got != families[0].stream {
		t.Error(got)
	}
}

var rid = regexp.MustCompile(`^\{("stream_options":\{"include_usage":true\},)?"rid":"(wr-[0-9a-f]{16})",`)

// SGLang gets a name for each request, spliced in front; the rest is untouched.
func TestSGLangGetsARequestID(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	e.toml = "kind = \"sglang\""
	p := startProxy(t, "models.alias = { small = \"m\" }", e)
	seen := map[string]bool{}
	for i, body := range []string{chat("hi"), `{"model":"small","stream":true,"messages":[]}`, ` {"model":"m","messages":[]}`} {
		p.post("/v1/chat/completions", body)
		got := e.got()[i].body
		m := rid.FindStringSubmatch(strings.TrimSpace(got))
		if m == nil || seen[m[2]] {
			t.Fatalf("%s", got)
		}
		seen[m[2]] = true
		want := strings.Replace(strings.Replace(body, "small", "m", 1), "{", fmt.Sprintf(`{%s"rid":%q,`, m[1], m[2]), 1)
		if got != want {
			t.Errorf("engine got %s\nwant %s", got, want)
		}
	}
	own := `{"rid":"mine","model":"m","messages":[]}`
	p.post("/v1/chat/completions", own)
	if got := e.got()[3].body; got != own {
		t.Errorf("the client's own name was changed: %s", got)
	}
}
