package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// C038: no cut of the engine's bytes changes them, inside characters included.
func TestAStreamIsTheSameForEveryCut(t *testing.T) {
	event := `data: {"choices":[{"index":0,"delta":{"content":"é漢😀"},"finish_reason":null}]}` + "\n\n"
	stream := event + stopEvent + usageEvent + doneEvent
	cut := 0
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) { events(w, stream[:cut], stream[cut:]) })
	p := startProxy(t, "", e)
	for cut = 1; cut < len(stream); cut++ {
		if got := p.post("/v1/chat/completions", chatStream("hi")); got.body != stream || got.err != nil {
			t.Fatalf("cut at %d: %v\n%q", cut, got.err, got.body)
		}
	}
	if v := p.metric("warmring_prompt_tokens_total"); v != itoa(16*(len(stream)-1)) {
		t.Errorf("prompt tokens %s", v)
	}
}

// C040, C041, C049, C051, C056: whatever the grammar allows is relayed as it is
// and read right.
func TestStreamsOfEveryGrammarAreReadAndRelayed(t *testing.T) {
	usage := func(choices string) string {
		return `data: {` + choices + `"usage":{"prompt_tokens":11,"completion_tokens":3}}` + "\n\n"
	}
	three := helloEvent + helloEvent + helloEvent
	running := ""
	for i := range 5 {
		running += fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":11,"completion_tokens":%d}}`, i-1) + "\n\n"
	}
	crlf := strings.ReplaceAll(three+usage(`"choices":[],`)+doneEvent, "\n", "\r\n")
	for name, stream := range map[string]string{
		"C040 empty choices":   three + usage(`"choices":[],`) + doneEvent,
		"C040 null choices":    three + usage(`"choices":null,`) + doneEvent,
		"C040 no choices":      three + usage(``) + doneEvent,
		"C041 metadata first":  `data: {"choices":[]}` + "\n\n" + three + usage(`"choices":[],`) + doneEvent,
		"C049 CRLF":            crlf,
		"C049 CR":              strings.ReplaceAll(crlf, "\r\n", "\r"),
		"C049 mixed":           strings.Replace(crlf, "\r\n", "\n", 3),
		"C049 no space":        strings.ReplaceAll(three+usage(`"choices":[],`)+doneEvent, "data: ", "data:"),
		"C049 two data lines":  three + strings.Replace(usage(`"choices":[],`), ",", ",\ndata: ", 1) + doneEvent,
		"C051 comments":        ": still working\n\n: still working\n\n" + strings.ReplaceAll(three, "data", ": x\ndata") + usage(`"choices":[],`) + doneEvent,
		"C056 running usage":   running + doneEvent,
		"byte order mark":      "\ufeff" + three + usage(`"choices":[],`) + doneEvent,
		"last event unended":   three + usage(`"choices":[],`) + "data: [DONE]",
		"ids and retry fields": "retry: 100\nid: 1\n" + three + "id: 2\n" + usage(`"choices":[],`) + doneEvent,
	} {
		for _, size := range []int{1 << 20, 1, 7} {
			t.Run(fmt.Sprintf("%s by %d", name, size), func(t *testing.T) {
				e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
					for at := 0; at < len(stream); at += size {
						events(w, stream[at:min(at+size, len(stream))])
					}
				})
				p := startProxy(t, "", e)
				got := p.post("/v1/chat/completions", chatStream("hi"))
				if got.body != stream || got.err != nil || got.status != 200 {
					t.Fatalf("%d %v\n%q\n%q", got.status, got.err, got.body, stream)
				}
				if in, out := p.metric("warmring_prompt_tokens_total"), p.metric("warmring_output_tokens_total"); in != "11" || out != "3" {
					t.Errorf("usage read as %s and %s", in, out)
				}
				if v := p.metric("warmring_cached_unknown_total"); v != "1" {
					t.Errorf("C203: cached tokens that nobody told of must be unknown: %s", v)
				}
			})
		}
	}
}

// C203: cached tokens are found in all four families, whole and streamed.
func TestCachedTokensOfEveryFamily(t *testing.T) {
	openai := `"usage":{"prompt_tokens":700,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":640}}`
	messages := `"usage":{"input_tokens":60,"cache_read_input_tokens":640,"output_tokens":3}`
	responses := `"usage":{"input_tokens":700,"input_tokens_details":{"cached_tokens":640},"output_tokens":3}`
	for _, tc := range []struct{ path, request, contentType, answer string }{
		{"/v1/chat/completions", families[0].body, "application/json", `{"choices":[],` + openai + `}`},
		{"/v1/chat/completions", families[0].stream, "text/event-stream", helloEvent + `data: {"choices":[],` + openai + "}\n\n" + doneEvent},
		{"/v1/completions", families[1].body, "application/json", `{"choices":[],` + openai + `}`},
		{"/v1/completions", families[1].stream, "text/event-stream", families[1].token + `data: {"choices":[],` + openai + "}\n\n" + doneEvent},
		{"/v1/messages", families[2].body, "application/json", `{"type":"message",` + messages + `}`},
		{"/v1/messages", families[2].stream, "text/event-stream", `event: message_start` + "\n" + `data: {"type":"message_start","message":{` + messages + "}}\n\n" + families[2].token + families[2].rest},
		{"/v1/responses", families[3].body, "application/json", `{"id":"r",` + responses + `}`},
		{"/v1/responses", families[3].stream, "text/event-stream", families[3].preamble + families[3].token + `event: response.completed` + "\n" + `data: {"type":"response.completed","response":{"id":"resp_1",` + responses + "}}\n\n"},
	} {
		t.Run(tc.path+" "+tc.contentType, func(t *testing.T) {
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = io.WriteString(w, tc.answer)
			})
			p := startProxy(t, "", e)
			if got := p.post(tc.path, tc.request); got.body != tc.answer {
				t.Fatalf("%d %q", got.status, got.body)
			}
			if v := p.metric("warmring_cached_tokens_total"); v != "640" {
				t.Errorf("cached %s", v)
			}
			if v := p.metric("warmring_cached_unknown_total"); v != "0" {
				t.Errorf("unknown %s", v)
			}
		})
	}
}

// C042: events larger than any buffer pass, and what follows them is still read.
func TestHugeEventsPass(t *testing.T) {
	for _, size := range []int{70_000, 1_500_000, 20_000_000} {
		stream := helloEvent + `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("a", size) + `"}}]}}]}` + "\n\n" + stopEvent + usageEvent + doneEvent
		e := streamingEngine(t, "a", stream[:100], stream[100:])
		p := startProxy(t, "", e)
		got := p.post("/v1/chat/completions", chatStream("hi"))
		if got.body != stream || got.err != nil {
			t.Errorf("%d: %v, %d bytes of %d", size, got.err, len(got.body), len(stream))
		}
		if v := p.metric("warmring_cached_tokens_total"); v != "12" {
			t.Errorf("%d: cached tokens %s", size, v)
		}
		// A preamble may be large, too, without any token in it.
		f := families[3]
		large := strings.Replace(f.preamble, `"status"`, `"instructions":"`+strings.Repeat("i", min(size, 3_000_000))+`","status"`, 1)
		e2 := streamingEngine(t, "b", large, f.token, f.rest)
		p2 := startProxy(t, "", e2)
		if got := p2.post(f.path, f.stream); got.body != large+f.token+f.rest {
			t.Errorf("%d: preamble: %d %v", size, got.status, got.err)
		}
	}
}

// C052: each event reaches the client before the engine writes the next. Headers
// wait for the first event that commits: nothing is released before it (a request
// can still be moved).
func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		events(w, roleEvent)
		for range 20 {
			events(w, helloEvent)
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		events(w, stopEvent, doneEvent)
	})
	for _, kind := range []string{"custom", "vllm"} { // with and without the usage filter
		e.toml = "kind = \"" + kind + "\""
		p := startProxy(t, "", e)
		resp, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(families[0].stream))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for range 20 {
			for want := 2; want > 0; { // an event's line and the empty one
				line, err := r.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(line, "hello") || (line == "\n" && want == 1) {
					want--
				}
			}
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), doneEvent) {
			t.Errorf("%v %q", err, rest)
		}
		_ = resp.Body.Close()
	}
}

// C058: the last chunk follows [DONE] at once and the connection goes on.
func TestFramingEndsWithTheStream(t *testing.T) {
	hold := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(hold) }))
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			// It keeps its side open after the body's end.
			hijack(w, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+chunked(helloEvent+stopEvent+doneEvent, 1000))
				<-hold
			})
			return
		}
		events(w, helloEvent, stopEvent, doneEvent)
	})
	p := startProxy(t, "", e)
	c := p.dial()
	for range 3 {
		c.send(rawPost("/v1/chat/completions", chatStream("hi"), "X-Slow: 1"))
		if got := c.receive(); got.err != nil || got.body != helloEvent+stopEvent+doneEvent {
			t.Fatalf("%v %q", got.err, got.body)
		}
		c.send(rawPost("/v1/chat/completions", chat("hi")))
		if got := c.receive(); got.err != nil || got.status != 200 {
			t.Fatalf("%v %d", got.err, got.status)
		}
	}
}

// C065, C066: no timer runs over a whole answer. Timers of a fraction of it, on
// every side, do not cut a stream that flows.
func TestAStreamThatFlowsIsNotCut(t *testing.T) {
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
		for range 60 {
			events(w, helloEvent)
			time.Sleep(40 * time.Millisecond) // 2.4 s in all
		}
		events(w, stopEvent, doneEvent)
	})
	p := startProxy(t, "server.read_timeout = \"1s\"\nserver.idle_timeout = \"1s\"\ntimeouts.write = \"1s\"\ntimeouts.client_write = \"1s\"\ntimeouts.between_bytes = \"500ms\"\ntimeouts.first_byte = \"500ms\"", e)
	got := p.post("/v1/chat/completions", chatStream("hi"))
	if got.err != nil || got.body != strings.Repeat(helloEvent, 60)+stopEvent+doneEvent {
		t.Errorf("%v, %d bytes", got.err, len(got.body))
	}
}

// A client that takes nothing any more is let go of, and its engine is freed.
func TestAStuckReaderIsEvicted(t *testing.T) {
	noticed := make(chan struct{})
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		event := strings.Replace(helloEvent, "hello", strings.Repeat("x", 10_000), 1)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			if _, err := io.WriteString(w, event); err != nil || r.Context().Err() != nil {
				close(noticed)
				return
			}
		}
	})
	p := startProxy(t, "timeouts.client_write = \"1s\"", e)
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chatStream("hi")))
	if _, err := c.in.ReadByte(); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the engine to be told", noticed)
	eventually(t, "the end in the log", func() bool { return strings.Contains(p.log.String(), "end=client_closed") })
}

// An event stream with a length is still passed on event by event.
func TestAStreamWithALength(t *testing.T) {
	next := make(chan struct{})
	whole := helloEvent + stopEvent + doneEvent
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", itoa(len(whole)))
		events(w, helloEvent)
		select {
		case <-next:
		case <-r.Context().Done():
		}
		events(w, stopEvent, doneEvent)
	})
	p := startProxy(t, "", e)
	c := p.dial()
	c.send(rawPost("/v1/chat/completions", chatStream("hi")))
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(helloEvent))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != helloEvent {
		t.Fatalf("%v %q", err, first)
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != stopEvent+doneEvent {
		t.Errorf("%v %q", err, rest)
	}
}
