package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func modelList(ids ...string) string {
	var cards []string
	for _, id := range ids {
		cards = append(cards, fmt.Sprintf(`{"id":%q,"object":"model"}`, id))
	}
	return `{"object":"list","data":[` + strings.Join(cards, ",") + `]}`
}

// C170: the list is the union of what the engines list, whatever is wrong with
// some of them, at once.
func TestTheListOfModelsIsTheUnion(t *testing.T) {
	var all []*fakeEngine
	for i, list := range []string{modelList("m", "a"), modelList("a", "b"), `{"object":"list","data":[]}`, `<html>hello</html>`, `{"data":[{"id":"bare"}]}`, `{"data":[{"object":"model"},{"id":7},{"id":"org/slash","extra":{"x":[1]}}]}`} {
		e := newFakeEngine(t, fmt.Sprint("e", i), nil)
		e.models = list
		all = append(all, e)
	}
	var toml strings.Builder
	toml.WriteString("listen = \"127.0.0.1:0\"\nmodels.alias = { small = \"a\" }\n")
	for _, e := range all {
		fmt.Fprintf(&toml, "[[engine]]\nname = %q\nurl = %q\n", e.name, e.URL)
	}
	toml.WriteString("[[engine]]\nname = \"dead\"\nurl = \"http://127.0.0.1:1\"\n")
	p := startProxyTOML(t, toml.String())
	var ids []string
	eventually(t, "all to be listed", func() bool {
		var list struct {
			Object string
			Data   []struct{ ID string }
		}
		got := p.get("/v1/models")
		if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.status != 200 || list.Object != "list" || got.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s %v", got.status, got.body, err)
		}
		ids = ids[:0]
		for _, m := range list.Data {
			ids = append(ids, m.ID)
		}
		return len(ids) >= 6
	})
	text := "," + strings.Join(ids, ",") + ","
	for _, id := range []string{"m", "a", "b", "bare", "org/slash", "small"} {
		if strings.Count(text, ","+id+",") != 1 {
			t.Errorf("%s in %v", id, ids)
		}
	}
	began := time.Now()
	for _, path := range []string{"/v1/models", "/models", "/v1/models/", "/v1/models?limit=1000", "/openai/v1/models"} {
		if got := p.get(path); got.status != 200 || !strings.Contains(got.body, `"org/slash"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
	for path, want := range map[string]int{"/v1/models/m": 200, "/v1/models/org/slash": 200, "/v1/models/org%2Fslash": 200, "/v1/models/small": 200, "/v1/models/none": 404} {
		if got := p.get(path); got.status != want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	resp, err := http.Head(p.url + "/v1/models")
	if err != nil || resp.StatusCode != 200 || resp.ContentLength <= 0 {
		t.Errorf("HEAD: %v %v", resp, err)
	}
	for _, e := range all {
		if n := len(e.got()); n != 0 {
			t.Errorf("%s was asked %d times: the list comes from memory", e.name, n)
		}
	}
}

// C171: adapters are models like any other; one that was loaded a moment ago is
// found by reading the lists once more before it is refused.
func TestAnAdapterLoadedAtRunTime(t *testing.T) {
	a, b := newFakeEngine(t, "a", nil), newFakeEngine(t, "b", nil)
	a.models, b.models = modelList("m", "ad-1", "ad-2"), modelList("m")
	p := startProxy(t, "[drain]\ndelay = \"1ms\"\n[probe]\ninterval = \"60s\"", a, b)
	ask := func(model string) answer {
		return p.post("/v1/chat/completions", strings.Replace(chat("hi"), `"m"`, fmt.Sprintf("%q", model), 1))
	}
	for _, model := range []string{"ad-1", "ad-2"} {
		if got := ask(model); got.status != 200 || got.header.Get("X-Warmring-Engine") != "a" {
			t.Errorf("%s: %d %s", model, got.status, got.body)
		}
	}
	if got := ask("ad-3"); got.status != 404 || !strings.Contains(got.body, "ad-1") {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.mu.Lock()
	b.models = modelList("m", "ad-3")
	b.mu.Unlock()
	eventually(t, "the lists to be old enough to be read again", func() bool { return ask("ad-3").status == 200 })
	if got := ask("ad-3"); got.header.Get("X-Warmring-Engine") != "b" {
		t.Errorf("ad-3 went to %s", got.header.Get("X-Warmring-Engine"))
	}
	if got := p.get("/v1/models/ad-3"); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// C182, C184, C193: every other path passes, to an engine of the model that the
// body names; its 404 is no news about anything else.
func TestOtherPathsPass(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(r.URL.Path, "count_tokens") {
			http.Error(w, "Not Found", 404)
			return
		}
		w.Header().Set("X-Was", r.Method+" "+r.RequestURI)
		w.WriteHeader(207)
		_, _ = w.Write(body)
	}
	a, b := newFakeEngine(t, "a", echo), newFakeEngine(t, "b", echo)
	a.models, b.models = modelList("m"), modelList("embedder")
	p := startProxy(t, "models.alias = { e = \"embedder\" }", a, b)
	for _, path := range []string{"/score", "/v1/score", "/rerank", "/v2/rerank", "/pooling", "/classify", "/tokenize", "/detokenize", "/v1/embeddings", "/v1/new-thing"} {
		for model, engine := range map[string]string{"m": "a", "embedder": "b", "e": "b"} {
			body := fmt.Sprintf(`{"model":%q, "input":"x"}`, model)
			got := p.post(path+"?q=1", body)
			want := strings.Replace(body, `"e"`, `"embedder"`, 1)
			if got.status != 207 || got.header.Get("X-Was") != "POST "+path+"?q=1" || got.body != want || got.header.Get("X-Warmring-Engine") != engine {
				t.Errorf("%s %s: %d %s %v", path, model, got.status, got.body, got.header)
			}
		}
		if got := p.post(path, `{"model":"zz"}`); got.status != 404 || !strings.Contains(got.body, "zz") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, method := range []string{"GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "POST"} {
		for _, path := range []string{"/v1/files", "/v1/messages/batches", "/v1/new-thing", "/openapi.json", "/"} {
			req, _ := http.NewRequest(method, p.url+path, nil)
			got := p.do(req, "X-End", "1")
			if got.status != 207 || got.header.Get("X-Was") != method+" "+path {
				t.Errorf("%s %s: %d %v", method, path, got.status, got.header)
			}
		}
	}
	if got := p.post("/v1/messages/count_tokens?beta=true", families[2].body); got.status != 404 || got.body != "Not Found\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	for range 5 {
		if got := p.post("/v1/messages", families[2].body); got.status != 207 {
			t.Errorf("C182: %d", got.status)
		}
	}
}

// C181: an answer is not judged.
func TestAnswersWithOddFieldsPass(t *testing.T) {
	for _, body := range []string{`{"usage":null,"extra":{"x":1}}`, `{}`, `[]`, `null`, `"text"`, ``, `{"usage":{"prompt_tokens":"many"}}`, `{"usage":{"prompt_tokens":-5,"completion_tokens":1e99}}`, `not json`, `{"usage":`} {
		for _, f := range families {
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			})
			p := startProxy(t, "", e)
			if got := p.post(f.path, f.body); got.status != 200 || got.body != body {
				t.Errorf("%s: %d %q, want %q", f.name, got.status, got.body, body)
			}
		}
	}
}

// C187: what is asked about a response goes to the engine that made it, by
// whoever made it.
func TestRequestsForAResponseGoToItsEngine(t *testing.T) {
	var all []*fakeEngine
	for i := range 4 {
		name := string(rune('a' + i))
		n := 0
		all = append(all, newFakeEngine(t, name, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/responses" {
				fmt.Fprintf(w, `{"from":%q}`, name)
				return
			}
			body, _ := io.ReadAll(r.Body)
			n++
			if strings.Contains(string(body), `"stream":true`) {
				events(w, strings.ReplaceAll(families[3].whole(), "resp_1", fmt.Sprintf("resp_%s%d", name, n)))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"resp_%s%d","object":"response","usage":{"input_tokens":3,"output_tokens":1}}`, name, n)
		}))
	}
	p := startProxy(t, "", all...)
	for i := range 12 {
		stream := i%2 == 0
		got := p.post("/v1/responses", fmt.Sprintf(`{"model":"m","stream":%v,"input":"question %d"}`, stream, i), "Authorization", "Bearer k")
		engine := got.header.Get("X-Warmring-Engine")
		_, id, _ := strings.Cut(got.body, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		if got.status != 200 || !strings.HasPrefix(id, "resp_"+engine) {
			t.Fatalf("%d %s", got.status, got.body)
		}
		for _, ask := range []string{"GET ", "DELETE ", "POST /cancel", "GET /input_items?limit=2"} {
			method, suffix, _ := strings.Cut(ask, " ")
			req, _ := http.NewRequest(method, p.url+"/v1/responses/"+id+suffix, nil)
			if got := p.do(req, "Authorization", "Bearer k"); got.body != fmt.Sprintf(`{"from":%q}`, engine) {
				t.Errorf("%s of %s was answered by %s", ask, id, got.body)
			}
		}
		// The chain goes on there, and so does a fork of it.
		previous := id
		for turn := range 3 {
			got := p.post("/v1/responses", fmt.Sprintf(`{"model":"m","input":"turn %d","previous_response_id":%q}`, turn, previous), "Authorization", "Bearer k")
			if e := got.header.Get("X-Warmring-Engine"); e != engine {
				t.Errorf("turn %d of %s went to %s", turn, id, e)
			}
			if turn < 2 {
				_, previous, _ = strings.Cut(got.body, `"id":"`)
				previous, _, _ = strings.Cut(previous, `"`)
			} else {
				previous = id
			}
		}
	}
	if got := p.metric(`warmring_requests_total{route="/v1/responses/{id}",status="2xx"}`); got != "24" {
		t.Errorf("C211: counted %s", got)
	}
}
