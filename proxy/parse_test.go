package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/warmring/warmring/config"
)

// Bodies reach the engine byte for byte, whatever is odd about them: it decides.
func TestOddBodiesReachTheEngineAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for _, tc := range []struct{ name, path, body, contentType string }{
		{"C001 a tool without parameters", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"a","parameters":{}}},{"type":"function","function":{"name":"list_tides"}}]}`, ""},
		{"C002 logprobs true", "/v1/completions", `{"model":"m","prompt":"hi","logprobs": true}`, ""},
		{"C003 no max_tokens", "/v1/completions", `{"model":"m","prompt":"Name three rivers."}`, ""},
		{"C010 a lone surrogate", "/v1/chat/completions", `{"model":"m","messages":[{"role":"tool","content":"cut \ud83d"}]}`, ""},
		{"C010 bytes that are no UTF-8", "/v1/chat/completions", "{\"model\":\"m\",\"messages\":[{\"role\":\"tool\",\"content\":\"\xff\xc3\"}]}", ""},
		{"C021 nulls", "/v1/chat/completions", `{"model":"m","tools":null,"stop":null,"stream":null,"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":null}}]},{"role":"user","content":"x","tool_calls":[]}]}`, "application/json; charset=UTF-8"},
		{"C021 a byte order mark", "/v1/chat/completions", "\ufeff" + chat("hi"), ""},
		{"numbers nobody can hold", "/v1/chat/completions", `{"seed":9007199254740995,"x":1e400,"y":0.10,"model":"m","messages":[]}`, ""},
		{"white space and order", "/v1/messages", " {\n\t\"messages\" : [ ] , \"model\":\"m\" } \n", ""},
		{"duplicate keys", "/v1/responses", `{"model":"m","input":"a","input":"b"}`, ""},
		{"not JSON", "/v1/chat/completions", "hello, engine", "text/plain"},
		{"JSON cut off", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`, ""},
		{"an array", "/v1/completions", `[1,2,3]`, ""},
		{"nothing", "/v1/chat/completions", "", ""},
		{"an empty object", "/v1/chat/completions", "{}", ""},
		{"form data", "/v1/audio/transcriptions", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n", "multipart/form-data; boundary=b"},
		{"deep", "/v1/chat/completions", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), ""},
		{"long string", "/v1/completions", `{"model":"m","prompt":"` + long + `"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, "", e)
			if tc.contentType == "" {
				tc.contentType = "application/json"
			}
			got := p.post(tc.path, tc.body, "Content-Type", tc.contentType)
			calls := e.got()
			if got.status != 200 || len(calls) != 1 || calls[0].body != tc.body || calls[0].header.Get("Content-Type") != tc.contentType {
				t.Fatalf("status %d %s; engine got %+v", got.status, got.body, calls)
			}
		})
	}
}

// C002, C175: what the engine says about a body is what the client is told.
func TestTheEnginesOwnErrorIsRelayed(t *testing.T) {
	const body = `{"error":{"message":"prompt is required"}}`
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; x=1")
		w.WriteHeader(400)
		_, _ = io.WriteString(w, body)
	})
	p := startProxy(t, "", e)
	got := p.post("/v1/completions", `{"model":"m"}`)
	if got.status != 400 || got.body != body || got.header.Get("Content-Type") != "application/json; x=1" {
		t.Fatalf("%d %q %v", got.status, got.body, got.header)
	}
}

// C004: two clients, kept connections, segments of 1 to 1,400 bytes: no body is
// cut or mixed with another.
func TestBodiesInSmallSegmentsArriveWhole(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "lanes.slices = false", e) // their bodies nobody sent
	const bodies = 100
	var mu sync.Mutex
	sent := map[[32]byte]bool{}
	var all sync.WaitGroup
	for n := range 2 {
		c := p.dial()
		r := rand.New(rand.NewPCG(7, uint64(n)))
		all.Go(func() {
			for i := range bodies {
				body := fmt.Sprintf(`{"model":"m","user":"%d-%d","messages":[{"role":"user","content":"%s"}]}`, n, i, strings.Repeat(string(rune('a'+r.IntN(26))), 512+r.IntN(64<<10)))
				mu.Lock()
				sent[sha256.Sum256([]byte(body))] = true
				mu.Unlock()
				whole := rawPost("/v1/chat/completions", body)
				small := 300 // the first bytes come one by one
				for len(whole) > 0 {
					size := 1 + r.IntN(1400)
					if small > 0 {
						size = 1
						small--
					}
					size = min(size, len(whole))
					if _, err := io.WriteString(c, whole[:size]); err != nil {
						t.Error(err)
						return
					}
					whole = whole[size:]
				}
				resp, err := http.ReadResponse(c.in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("client %d body %d: %v", n, i, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	all.Wait()
	got := e.got()
	for _, c := range got {
		if h := sha256.Sum256([]byte(c.body)); !sent[h] {
			t.Errorf("the engine got a body of %d bytes that nobody sent", len(c.body))
		}
	}
	if len(got) != 2*bodies {
		t.Errorf("the engine got %d bodies, want %d", len(got), 2*bodies)
	}
}

// C004: a client that stops in the middle of its body is told so; no fragment is
// forwarded.
func TestACutOffBodyIsNotForwarded(t *testing.T) {
	for name, request := range map[string]string{
		"length":  "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"model\":\"m\"",
		"chunked": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n{\"model\":\"m\"",
		"headers": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-",
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t, "a", nil)
			p := startProxy(t, "", e)
			c := p.dial()
			c.send(request)
			_ = c.CloseWrite()
			got := c.receive()
			if got.status != 400 || !strings.Contains(got.body, `"error"`) || !c.closed() {
				t.Errorf("%d %s", got.status, got.body)
			}
			if len(e.got()) != 0 {
				t.Error("a fragment was forwarded")
			}
		})
	}
}

// C006: three images are an ordinary request.
func TestALargeBodyPasses(t *testing.T) {
	if limit := config.Default().Server.MaxBody; limit < 32<<20 {
		t.Errorf("the default limit is %v, want 32 MB at least (C008)", limit)
	}
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	image := strings.Repeat("QUJD", 2_100_000*4/3/4)
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, image, image, image)
	if got := p.post("/v1/chat/completions", body); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if e.got()[0].body != body {
		t.Error("the body changed")
	}
}

// C006, C007, C008, C024: over the limit is 413 in the family's shape, counted
// and logged like any other outcome; the engine hears nothing.
func TestABodyOverTheLimitIs413(t *testing.T) {
	body := `{"model":"m","input":"` + strings.Repeat("x", 1_200_000) + `"}`
	for _, f := range families {
		for _, framing := range []string{"length", "chunked"} {
			t.Run(f.name+" "+framing, func(t *testing.T) {
				e := newFakeEngine(t, "a", nil)
				p := startProxy(t, "server.max_body = \"1MB\"", e)
				c := p.dial()
				// The answer may come while the body is still being sent.
				go func() {
					if framing == "length" {
						_, _ = io.WriteString(c, rawPost(f.path, body))
					} else {
						_, _ = io.WriteString(c, rawPost(f.path, chunked(body+body+body, 64<<10), "Transfer-Encoding: chunked"))
					}
				}()
				got := c.receive()
				if got.status != 413 || !strings.Contains(got.body, "max_body") || !strings.Contains(got.body, "1MB") {
					t.Errorf("%d %s", got.status, got.body)
				}
				if f.name == "messages" && !strings.Contains(got.body, `{"type":"error","error":{"type":"request_too_large"`) {
					t.Errorf("not the family's shape: %s", got.body)
				}
				if got.header.Get("Content-Type") != "application/json" {
					t.Error(got.header)
				}
				if v := p.metric(fmt.Sprintf(`warmring_requests_total{route=%q,status="4xx"}`, f.path)); v != "1" {
					t.Errorf("counted %q", v)
				}
				eventually(t, "the access line", func() bool { return strings.Contains(p.log.String(), "msg=request") })
				if line := p.log.String(); !strings.Contains(line, "status=413") || !strings.Contains(line, "model=unknown") || (framing == "length" && !strings.Contains(line, "bytes_in="+itoa(len(body)))) {
					t.Errorf("access line: %s", line)
				}
				if len(e.got()) != 0 {
					t.Error("the engine was contacted")
				}
			})
		}
	}
}

// C014: the query is the engine's, verbatim and in order.
func TestTheQueryPasses(t *testing.T) {
	for _, uri := range []string{"/v1/messages?beta=true", "/v1/chat/completions?x=1&x=2", "/v1/chat/completions?a=%2F%zz&b=+&&c", "/v1/completions?"} {
		e := newFakeEngine(t, "a", nil)
		p := startProxy(t, "", e)
		c := p.dial()
		c.send(rawPost(uri, chat("hi")))
		if got := c.receive(); got.status != 200 {
			t.Errorf("%s: %d %s", uri, got.status, got.body)
		}
		if calls := e.got(); len(calls) != 1 || calls[0].uri != uri {
			t.Errorf("%s: engine got %+v", uri, calls)
		}
	}
}

// C013: a version segment is never doubled.
func TestBaseURLForms(t *testing.T) {
	for suffix, want := range map[string]string{
		"": "/v1/chat/completions", "/": "/v1/chat/completions", "/v1": "/v1/chat/completions", "/v1/": "/v1/chat/completions", "/serve/a/v4": "/serve/a/v4/chat/completions",
	} {
		e := newFakeEngine(t, "a", nil)
		e.toml = fmt.Sprintf("url = %q", e.URL+suffix)
		p := startProxy(t, "", e)
		if got := p.post("/v1/chat/completions", chat("hi")); got.status != 200 {
			t.Errorf("%q: %d %s", suffix, got.status, got.body)
		}
		if calls := e.got(); len(calls) != 1 || calls[0].uri != want {
			t.Errorf("%q: engine got %+v, want %s", suffix, calls, want)
		}
	}
}

// C015: a client that asks before it sends its body.
func TestExpectContinue(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "server.max_body = \"1MB\"", e)
	body := `{"model":"m","prompt":"` + strings.Repeat("x", 200_000) + `"}`
	t.Run("a normal body", func(t *testing.T) {
		c := p.dial()
		head, _, _ := strings.Cut(rawPost("/v1/completions", body, "Expect: 100-continue"), "\r\n\r\n")
		c.send(head + "\r\n\r\n")
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil || resp.StatusCode != 100 {
			t.Fatalf("%v %v", resp, err)
		}
		c.send(body)
		if got := c.receive(); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		calls := e.got()
		if len(calls) != 1 || calls[0].body != body || calls[0].header.Get("Expect") != "" {
			t.Errorf("engine got %d calls, Expect %q", len(calls), calls[0].header.Get("Expect"))
		}
	})
	t.Run("over the limit", func(t *testing.T) {
		c := p.dial()
		c.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n")
		got := c.receive()
		if got.status != 413 || !strings.Contains(got.body, "request_too_large") || !c.closed() {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	if n := len(e.got()); n != 1 {
		t.Errorf("engine got %d requests, want 1", n)
	}
}

// C023: what clients of every family send arrives as if there were no proxy.
func TestCapturedBodiesPass(t *testing.T) {
	var bodies []string
	_ = filepath.Walk("../ring/prompt/captured", func(path string, info os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".json") {
			if b, err := os.ReadFile(path); err == nil {
				bodies = append(bodies, string(b))
			}
		}
		return nil
	})
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{`"plain"`, `"esc \"\\\/\n\u00e9 \ud83d\ude00"`, `"é 漢 😀"`, `[{"type":"text","text":"a"}]`, `null`, `""`, `[]`}
	pick := func() string { return texts[r.IntN(len(texts))] }
	for i := range 200 {
		switch i % 4 {
		case 0:
			bodies = append(bodies, fmt.Sprintf(`{"messages":[{"role":"system","content":%s},{"content":%s,"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":%d}"}}]},{"role":"tool","tool_call_id":"c","content":%s}],"model":"m","temperature":%g}`, pick(), pick(), i, pick(), r.Float64()))
		case 1:
			bodies = append(bodies, fmt.Sprintf(`{"model":"m", "prompt":[%d, 2,3],"echo":true,"user":%s}`, i, pick()))
		case 2:
			bodies = append(bodies, fmt.Sprintf(`{"system":%s,"model":"m","max_tokens":%d,"messages":[{"role":"user","content":%s},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"x":[1,2,{}]}}]}]}`, pick(), i, pick()))
		default:
			bodies = append(bodies, fmt.Sprintf("{\"model\":\"m\",\r\n\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":%s},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":%s}],\"store\":false}", pick(), pick()))
		}
	}
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	p := startProxy(t, "models.default = \"\"", e)
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}
	for i, body := range bodies {
		if !strings.Contains(body, `"model":"m"`) {
			continue // a capture under its own model's name
		}
		if got := p.post(paths[i%4], body); got.status != 200 || got.body != body {
			t.Fatalf("body %d changed: %d\n%s\n%s", i, got.status, body, got.body)
		}
	}
}

// C205: a body that cannot be read is counted by its reason, and the log says so
// now and then.
func TestUnreadableBodiesAreCounted(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e)
	for i := range 20 {
		body := chat(fmt.Sprint("hi ", i))
		if i%5 == 0 {
			body = "no json at all"
		}
		p.post("/v1/chat/completions", body)
	}
	var b bytes.Buffer
	p.metrics.write(p.Server, &b)
	if !strings.Contains(b.String(), `warmring_unparsed_total{reason="`) {
		t.Error("not counted")
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "warmring_unparsed_total") && !strings.HasSuffix(line, " 4\n") {
			t.Errorf("counted %s", line)
		}
	}
	if n := strings.Count(p.log.String(), "prompt could not be read"); n != 1 {
		t.Errorf("%d lines in the log, want 1 a minute", n)
	}
}

// C010, C127: a body that only lenient readers understand still keeps its session
// on one engine.
func TestASessionWithALoneSurrogateStays(t *testing.T) {
	for name, first := range map[string]string{
		"lone surrogate": `{"model":"m","messages":[{"role":"user","content":"q1 ` + strings.Repeat("word ", 400) + `"},{"role":"tool","content":"cut \ud83d"}`,
		"not JSON":       strings.Repeat("raw text that is no JSON ", 400),
	} {
		t.Run(name, func(t *testing.T) {
			var engines []*fakeEngine
			for _, n := range []string{"a", "b", "c", "d"} {
				engines = append(engines, newFakeEngine(t, n, nil))
			}
			p := startProxy(t, "", engines...)
			a := p.post("/v1/chat/completions", first+`,{"role":"user","content":"and"}]}`)
			b := p.post("/v1/chat/completions", first+`,{"role":"user","content":"and"},{"role":"assistant","content":"x"},{"role":"user","content":"more"}]}`)
			if a.status != 200 || b.status != 200 || a.header.Get("X-Warmring-Engine") != b.header.Get("X-Warmring-Engine") {
				t.Errorf("turn 1 on %s, turn 2 on %s (%s)", a.header.Get("X-Warmring-Engine"), b.header.Get("X-Warmring-Engine"), b.header.Get("X-Warmring-Reason"))
			}
		})
	}
}
