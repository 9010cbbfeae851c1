package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/warmring/warmring/engines"
)

// Item 11: what the operators' listener answers, and that clients cannot reach
// it.
func TestTheAdminListener(t *testing.T) {
	e := newFakeEngine(t, "a:b", nil)
	p := startProxy(t, "", e)
	got := p.post("/v1/chat/completions", chat("hi"), "X-Session-Id", "s", "X-Request-Id", "r-1")
	session := got.header.Get("X-Warmring-Session")
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ready: 1 of 1", "/metrics": "warmring_request_ends_total{end=\"ok\"} 1", "/api/engines": `"state": "ready"`,
		"/api/sessions": session, "/api/sessions/" + session: session, "/api/ring": `"engines"`, "/api/explain/r-1": `"request": "r-1"`,
		"/api/cluster": `"enabled": false`, "/": "<html", "/debug/pprof/": "heap",
	} {
		got := p.operator("GET", path)
		if got.status != 200 || !strings.Contains(strings.ToLower(got.body), strings.ToLower(want)) {
			t.Errorf("%s: %d %.300s", path, got.status, got.body)
		}
		if strings.HasPrefix(path, "/api/") && !json.Valid([]byte(got.body)) {
			t.Errorf("%s is no JSON", path)
		}
	}
	for path, want := range map[string]int{
		"/nothing": 404, "/api/sessions/0000000000000001": 404, "/api/sessions/xyz": 400, "/api/explain/none": 404, "/api/engines/a:b/drain": 405,
		"/api/sessions?limit=0": 200, "/api/sessions?limit=-1": 200, "/api/sessions?limit=99999999999999999999": 200,
	} {
		if got := p.operator("GET", path); got.status != want {
			t.Errorf("GET %s: %d %s", path, got.status, got.body)
		}
	}
	for path, want := range map[string]int{"/api/engines/zz/drain": 404, "/api/engines//drain": 404, "/healthz": 405} {
		if got := p.operator("POST", path); got.status != want && !(want == 404 && got.status == 405) {
			t.Errorf("POST %s: %d %s", path, got.status, got.body)
		}
	}
	for _, action := range []string{"drain", "undrain"} {
		if got := p.operator("POST", "/api/engines/a:b/"+action); got.status != 200 || !strings.Contains(got.body, action) {
			t.Errorf("%s: %d %s", action, got.status, got.body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/api/engines", "/debug/pprof/"} {
		if got := p.get(path); strings.Contains(got.body, "usable") || strings.Contains(got.body, "state") {
			t.Errorf("a client can see %s", path)
		}
	}
}

// One line a request, with what an operator needs; and its explanation.
func TestTheAccessLineAndTheExplanation(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "", e, newFakeEngine(t, "b", nil))
	got := p.post("/v1/chat/completions", chat(strings.Repeat("word ", 100)), "X-Request-Id", "r-9", "X-Session-Id", "s")
	eventually(t, "the line", func() bool { return strings.Contains(p.log.String(), "request=r-9") })
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, "request=r-9") {
			continue
		}
		for _, want := range []string{"method=POST", "route=/v1/chat/completions", "status=200", "end=ok", "model=m", "engine=" + got.header.Get("X-Warmring-Engine"), "session=" + got.header.Get("X-Warmring-Session"), "turn=1", "prompt=11", "cached=8", "output=1", "ttft_ms=", "bytes_in=", "bytes_out=" + itoa(len(got.body))} {
			if !strings.Contains(line, want) {
				t.Errorf("%s is not in %s", want, line)
			}
		}
	}
	var x Explanation
	if err := json.Unmarshal([]byte(p.operator("GET", "/api/explain/r-9").body), &x); err != nil || x.Engine != got.header.Get("X-Warmring-Engine") || x.Reason != got.header.Get("X-Warmring-Reason") || len(x.Candidates) == 0 || x.RealCached != 8 || x.Attempts != 1 || x.Source == "" {
		t.Errorf("%v %+v", err, x)
	}
}

// C210, C211: names from outside make no series, however many there are.
func TestSeriesAreBounded(t *testing.T) {
	e := newFakeEngine(t, "a", nil)
	p := startProxy(t, "models.default = \"m\"\nlog.access = false", e)
	count := func() int { return strings.Count(p.operator("GET", "/metrics").body, "\n") }
	c := p.dial()
	send := func(i int) {
		method := []string{"GET", "POST", "PUT", "X" + itoa(i)}[i%4]
		c.send(fmt.Sprintf("%s /v1/x-%d HTTP/1.1\r\nHost: x\r\n\r\n", method, i) + fmt.Sprintf("GET /v1/responses/resp_%d HTTP/1.1\r\nHost: x\r\n\r\n", i) +
			rawPost("/v1/chat/completions", fmt.Sprintf(`{"model":"model-%d","messages":[{"role":"user","content":"%d"}]}`, i, i), fmt.Sprint("X-Session-Id: s", i)))
		for range 3 {
			if got := c.receive(); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
	}
	for i := range 20 {
		send(i)
	}
	before := count()
	for i := range 1000 {
		send(1000 + i)
	}
	if after := count(); after > before {
		t.Errorf("%d lines of metrics, %d before", after, before)
	}
	if got := p.metric(`warmring_requests_total{route="/v1/responses/{id}",status="2xx"}`); got != "1020" {
		t.Errorf("counted %s", got)
	}
}

// A panic is one request's: 500 in the family's shape, counted, nothing left, and
// nothing of its secrets told (C206).
func TestAPanicIsOneRequests(t *testing.T) {
	const secret = "kk-secret-1"
	good, bad := newFakeEngine(t, "good", nil), newFakeEngine(t, "bad", nil)
	bad.models = modelList("boom")
	var pool *engines.Pool
	p := startProxyTOML(t, fmt.Sprintf("listen = \"127.0.0.1:0\"\n[[engine]]\nname = \"good\"\nurl = %q\n[[engine]]\nname = \"bad\"\nurl = %q\n", good.URL, bad.URL), func(s *Server) {
		up := s.upstreams()["bad"]
		pool, up.pool = up.pool, nil // the mistake
	})
	eventually(t, "both to be listed", func() bool { return len(p.fleet.ModelNames()) == 2 })
	for _, f := range families {
		body := strings.Replace(f.body, `"m"`, `"boom"`, 1)
		eventually(t, "the engine to be placed on", func() bool {
			got := p.post(f.path+"?key="+secret, body, "Authorization", "Bearer "+secret)
			if got.status == 503 {
				return false
			}
			if got.status != 500 || !strings.Contains(got.body, "internal_error") && f.name != "messages" {
				t.Errorf("%s: %d %s", f.name, got.status, got.body)
			}
			if strings.Contains(got.body, "nil pointer") || strings.Contains(got.body, ".go:") || strings.Contains(got.body, secret) {
				t.Errorf("it tells its insides: %s", got.body)
			}
			return true
		})
		if got := p.post(f.path, f.body); got.status != 200 {
			t.Errorf("%s: %d afterwards", f.name, got.status)
		}
	}
	eventually(t, "all to be over", func() bool { return p.live.count() == 0 })
	p.upstreams()["bad"].pool = pool
	if v := p.metric("warmring_panics_total"); v != "4" {
		t.Errorf("counted %s", v)
	}
	if v := p.metric(`warmring_request_ends_total{end="panic"}`); v != "4" {
		t.Errorf("ends: %s", v)
	}
	if strings.Contains(p.log.String(), secret) {
		t.Error("the log tells a secret")
	}
}
