package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// C206, C208: keys of clients and engines occur nowhere that the proxy writes,
// whatever comes of the requests.
func TestSecretsAreShownNowhere(t *testing.T) {
	const secret = "kk-secret-1"
	t.Setenv("WARMRING_TEST_KEY", secret+"-engine")
	t.Setenv("WARMRING_TEST_SALT", secret+"-salt")
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "bad"):
			w.WriteHeader(400)
		case strings.Contains(string(body), "boom"):
			w.WriteHeader(500)
		case strings.Contains(string(body), "die"):
			hijack(w, reset)
		case strings.Contains(string(body), "stream"):
			events(w, helloEvent)
			hijack(w, reset)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	})
	e.toml = "api_key_env = \"WARMRING_TEST_KEY\"\nheaders = { x-engine-token = \"" + secret + "-header\" }"
	p := startProxy(t, "identity.secret = \"${WARMRING_TEST_SALT}\"", e)
	var shown bytes.Buffer
	keys := []string{"Authorization", "Bearer " + secret, "X-Api-Key", secret, "Api-Key", secret, "Cookie", "session=" + secret, "Sec-Websocket-Protocol", secret, "Proxy-Authorization", "Basic " + secret, "X-Session-Id", secret}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/unknown", "/flush_cache", "/v1/models/none"} {
		for _, body := range []string{chat("hi"), chat("bad"), chat("boom"), chat("die"), chatStream("stream"), "no json " + secret, `{"model":"zz"}`} {
			got := p.post(path+"?key="+secret, body, keys...)
			for name, values := range got.header {
				fmt.Fprintln(&shown, name, values)
			}
			fmt.Fprintln(&shown, got.body)
		}
	}
	for _, head := range []string{
		"Authorization: Bearer " + secret + "\r\nContent-Length: x" + secret, "Authorization : " + secret, "Transfer-Encoding: " + secret,
		"X-Key: " + strings.Repeat(secret, 3000), "Content-Length: 99999999999", "Cookie: " + secret + "\r\nConnection: Upgrade\r\nUpgrade: websocket", "Content-Encoding: " + secret + "\r\nContent-Length: 1",
	} {
		c := p.dial()
		go func() {
			_, _ = io.WriteString(c, "POST /v1/messages?key="+secret+" HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\nx")
		}()
		got := c.receive()
		if strings.HasPrefix(head, "Content-Encoding") {
			continue // it names the coding that the client named
		}
		fmt.Fprintln(&shown, got.header, got.body)
	}
	e.CloseClientConnections()
	e.Close()
	eventually(t, "the engine to be down", func() bool { return p.fleet.Engines()[0].State().String() == "down" })
	for _, path := range []string{"/api/engines", "/api/sessions", "/api/ring", "/metrics", "/", "/api/cluster", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		fmt.Fprintln(&shown, p.operator("GET", path).body)
	}
	p.shutdown()
	fmt.Fprintf(&shown, "%s\n%v\n%+v\n%#v\n", p.log.String(), p.fleet.Engines()[0], p.fleet.Status(), p.cfg.Identity)
	for line := range strings.Lines(shown.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("shown: %.400s", line)
		}
	}
}
