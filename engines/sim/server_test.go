package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a person's connection that can be dropped at any moment.
type client struct {
	t    *testing.T
	conn net.Conn
	res  *http.Response
	in   *bufio.Reader
}

func dial(t *testing.T, s *Server, path, body string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	return &client{t: t, conn: conn}
}

func (c *client) headers() *http.Response {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.res, c.in = res, bufio.NewReader(res.Body)
	return res
}

// event reads one event's data.
func (c *client) event() (string, error) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSpace(data), nil
		}
	}
}

func await(t *testing.T, s *Server, what string, condition func(log []Entry) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := s.Await(ctx, condition); err != nil {
		t.Fatalf("waiting for %s: %v; log %+v", what, err, s.Log())
	}
}

func body(text string, more string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]%s}`, text, more)
}

// slow makes prefill take a second per 1,000 tokens in chunks of 100 tokens.
var slow = Cost{Base: 0.001, Prefill: 0.001, Decode: 0.001}

func TestVLLMSendsHeadersBeforeThePrefillAndSeesTheClientLeave(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{MaxBatchedTokens: 100, Cost: slow}, Speed: 1})
	c := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true`))
	if res := c.headers(); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	await(t, s, "the prefill to begin", func(log []Entry) bool { return len(log) == 1 && s.Engine().Stats().Prefilled > 300 })
	if log := s.Log(); !log[0].FirstToken.IsZero() {
		t.Fatal("there is a token already")
	}
	c.conn.Close()
	await(t, s, "the abort", func(log []Entry) bool { return log[0].Outcome == Gone && !log[0].Aborted.IsZero() })
	e := s.Log()[0]
	if took := e.Aborted.Sub(e.Left); took > 2*time.Second { // a step takes 100 ms; the whole prefill would take 20 s
		t.Errorf("the abort took %v after the close", took)
	}
	if st := s.Engine().Stats(); st.Used != 0 || st.Dropped != 1 {
		t.Errorf("memory is still held: %+v", st)
	}
	// What was computed is found again.
	if done := s.Engine().Stats().Stored; done < 300 {
		t.Errorf("%d tokens kept", done)
	}
}

func TestResponsesBeginBeforeThePrefill(t *testing.T) {
	for _, mode := range []Mode{VLLM, SGLang} {
		s := start(t, ServerOptions{Options: Options{Mode: mode, MaxBatchedTokens: 100, Cost: slow}, Speed: 1})
		c := dial(t, s, "/v1/responses", fmt.Sprintf(`{"stream":true,"input":%q}`, strings.Repeat("word", 20_000)))
		c.headers()
		for _, want := range []string{"response.created", "response.in_progress"} {
			if e, err := c.event(); err != nil || !strings.Contains(e, `"type":"`+want+`"`) {
				t.Fatalf("%v %s", err, e)
			}
		}
		if !s.Log()[0].FirstToken.IsZero() {
			t.Error("there is a token already")
		}
	}
}

func TestTheClientsCloseIsSeenInDecode(t *testing.T) {
	for _, mode := range []Mode{VLLM, SGLang, Llama} {
		s := start(t, ServerOptions{Options: Options{Mode: mode, Cost: slow}, Speed: 1})
		c := dial(t, s, "/v1/chat/completions", body("hello", `,"stream":true,"max_tokens":50000`))
		c.headers()
		for i := 0; i < 3; i++ {
			if _, err := c.event(); err != nil {
				t.Fatal(err)
			}
		}
		c.conn.Close()
		await(t, s, "the abort", func(log []Entry) bool { return !log[0].Aborted.IsZero() })
		if st := s.Engine().Stats(); st.Used != 0 {
			t.Errorf("%v: still held: %+v", mode, st)
		}
	}
}

func TestSGLangLooksForAClosedClientEveryFourSeconds(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{Mode: SGLang, MaxBatchedTokens: 100, Cost: slow}, Speed: 10})
	c := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true`))
	await(t, s, "the prefill to begin", func(log []Entry) bool { return s.Engine().Stats().Prefilled > 300 })
	c.conn.Close()
	await(t, s, "the abort", func(log []Entry) bool { return !log[0].Aborted.IsZero() })
	e := s.Log()[0]
	if took := e.Aborted.Sub(e.Time); took < 400*time.Millisecond || took > 1900*time.Millisecond {
		t.Errorf("aborted %v after the request; at speed 10 the look is at 400 ms", took)
	}
}

func TestSGLangAbortsByRequestIDAtOnce(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{Mode: SGLang, MaxBatchedTokens: 100, Cost: slow}, Speed: 1})
	c := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true,"rid":"mine-1","stream_options":{"include_usage":true}`))
	await(t, s, "the prefill to begin", func(log []Entry) bool { return s.Engine().Stats().Prefilled > 300 })
	if status, _, _ := send(t, s.URL(), "/abort_request", `{"rid":"mine-"}`); status != 200 {
		t.Fatal(status)
	}
	c.headers()
	rest, err := io.ReadAll(c.res.Body)
	if err != nil || !bytes.Contains(rest, []byte(`"finish_reason":"abort"`)) || !bytes.Contains(rest, []byte(`"prompt_tokens":0`)) || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
		t.Errorf("%v %s", err, rest)
	}
	await(t, s, "the end", func(log []Entry) bool { return log[0].Outcome == Gone })
}

func TestSGLangSendsHeadersWithTheFirstTokenAndQueueFullInside(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{Mode: SGLang, MaxQueued: 1, MaxBatchedTokens: 100, Cost: slow}, Models: []string{"tiny"}, Speed: 1})
	long := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true`))
	await(t, s, "the prefill to begin", func(log []Entry) bool { return s.Engine().Stats().Prefilled > 100 })
	dial(t, s, "/v1/chat/completions", body("queued", ""))
	await(t, s, "the queue", func(log []Entry) bool { return s.Engine().Stats().Waiting == 1 })
	for fixture, c := range map[string]struct{ path, body string }{
		"err-queue-full-chat":             {"/v1/chat/completions", body("x", "")},
		"err-queue-full-chat-stream":      {"/v1/chat/completions", body("x", `,"stream":true,"stream_options":{"include_usage":true}`)},
		"err-queue-full-messages":         {"/v1/messages", body("x", `,"max_tokens":3`)},
		"err-queue-full-messages-stream":  {"/v1/messages", body("x", `,"max_tokens":3,"stream":true`)},
		"err-queue-full-responses-stream": {"/v1/responses", `{"input":"x","max_output_tokens":4,"stream":true}`},
	} {
		want := captured(t, "sglang/"+fixture)
		status, kind, answer := send(t, s.URL(), c.path, c.body)
		if got := shape(t, status, kind, answer); fixture != "err-queue-full-responses-stream" && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\n got %s\nwant %s", fixture, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		} else if len(got) != len(want) {
			t.Errorf("%s: %d events, want %d", fixture, len(got), len(want))
		}
	}
	long.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := long.conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("bytes before the first token: %d, %v", n, err)
	}
	if !s.Log()[0].FirstToken.IsZero() {
		t.Error("the long prompt is done too early for this test")
	}
}

func TestCachedTokensAreInEveryFamilysUsage(t *testing.T) {
	text := strings.Repeat("word ", 200)
	for _, mode := range []Mode{VLLM, SGLang} {
		s := start(t, ServerOptions{Options: Options{Mode: mode}})
		for _, c := range []struct{ path, body, field string }{
			{"/v1/chat/completions", body(text, ""), `"cached_tokens":`},
			{"/v1/chat/completions", body(text, `,"stream":true,"stream_options":{"include_usage":true}`), `"cached_tokens":`},
			{"/v1/completions", fmt.Sprintf(`{"prompt":%q}`, text), `"cached_tokens":`},
			{"/v1/messages", body(text, `,"max_tokens":5`), `"cache_read_input_tokens":`},
			{"/v1/messages", body(text, `,"max_tokens":5,"stream":true`), `"cache_read_input_tokens":`},
			{"/v1/responses", fmt.Sprintf(`{"input":%q}`, text), `"cached_tokens":`},
			{"/v1/responses", fmt.Sprintf(`{"input":%q,"stream":true}`, text), `"cached_tokens":`},
		} {
			s.Engine().ResetCache()
			send(t, s.URL(), c.path, c.body)
			_, _, answer := send(t, s.URL(), c.path, c.body)
			want := s.Log()[len(s.Log())-1]
			if want.CachedTokens < 240 || want.CachedTokens >= want.PromptTokens {
				t.Fatalf("%s: %d of %d cached", c.path, want.CachedTokens, want.PromptTokens)
			}
			if !bytes.Contains(answer, fmt.Appendf(nil, "%s%d", c.field, want.CachedTokens)) {
				t.Errorf("%v %s: no %s%d in %s", mode, c.path, c.field, want.CachedTokens, answer)
			}
		}
	}
}

func TestAnAgentsConversationExtendsItself(t *testing.T) {
	s := start(t, ServerOptions{})
	tools := `,"max_tokens":32000,"tools":[{"type":"function","function":{"name":"ls","description":"lists","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]`
	user := `{"role":"user","content":"please [[call ls {\"path\":\"/tmp\"}]] and [[call ls]] then say so"}`
	messages := user
	for turn, want := range []string{`{"path":"/tmp"}`, `{"path":"x"}`, ""} {
		_, _, answer := send(t, s.URL(), "/v1/chat/completions", `{"messages":[`+messages+`]`+tools+`}`)
		var a struct {
			Choices []struct {
				Message struct {
					Content   *string         `json:"content"`
					ToolCalls json.RawMessage `json:"tool_calls"`
				} `json:"message"`
				Reason string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(answer, &a); err != nil {
			t.Fatal(err)
		}
		m := a.Choices[0].Message
		e := s.Log()[turn]
		if turn > 0 {
			if before := s.Log()[turn-1]; e.CachedTokens < (before.PromptTokens+before.OutputTokens-1)/16*16 {
				t.Errorf("turn %d found %d of its predecessor's %d+%d tokens", turn, e.CachedTokens, before.PromptTokens, before.OutputTokens)
			}
		}
		if want == "" {
			if a.Choices[0].Reason != "stop" || m.Content == nil {
				t.Errorf("the last answer should be text: %s", answer)
			}
			break
		}
		if a.Choices[0].Reason != "tool_calls" || !bytes.Contains(m.ToolCalls, appendQuoted(nil, want)) {
			t.Fatalf("turn %d: %s", turn, answer)
		}
		var calls []struct{ ID string }
		json.Unmarshal(m.ToolCalls, &calls)
		messages += fmt.Sprintf(`,{"role":"assistant","content":null,"tool_calls":%s},{"role":"tool","tool_call_id":%q,"content":"a b c"}`, m.ToolCalls, calls[0].ID)
	}
}

func TestToolCallsComeInEveryFamilysShape(t *testing.T) {
	const order = `[[call ls {\"path\":\"/tmp\"}]]`
	for _, mode := range []Mode{VLLM, SGLang} {
		s := start(t, ServerOptions{Options: Options{Mode: mode}})
		for _, c := range []struct{ path, body, last string }{
			{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + order + `"}],"tools":[{"type":"function","function":{"name":"ls"}}]`, `"tool_calls"`},
			{"/v1/messages", `{"max_tokens":1000,"messages":[{"role":"user","content":"` + order + `"}],"tools":[{"name":"ls","input_schema":{}}]`, `"tool_use"`},
			{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"` + order + `"}]}],"tools":[{"type":"function","name":"ls"}]`, `"function_call"`},
		} {
			status, _, whole := send(t, s.URL(), c.path, c.body+"}")
			if status != 200 || !json.Valid(whole) || !bytes.Contains(whole, []byte(c.last)) || !bytes.Contains(whole, []byte("/tmp")) {
				t.Errorf("%v %s: %d %s", mode, c.path, status, whole)
			}
			_, _, stream := send(t, s.URL(), c.path, c.body+`,"stream":true}`)
			if !bytes.Contains(stream, []byte(c.last)) || !bytes.Contains(stream, []byte("/tmp")) {
				t.Errorf("%v %s: %s", mode, c.path, stream)
			}
			for _, line := range strings.Split(string(stream), "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Errorf("%v %s: not JSON: %s", mode, c.path, data)
				}
			}
		}
	}
}

func TestPreviousResponseGoesOn(t *testing.T) {
	s := start(t, ServerOptions{})
	text := strings.Repeat("word ", 100)
	send(t, s.URL(), "/v1/responses", fmt.Sprintf(`{"input":%q}`, text))
	first := s.Log()[0]
	status, _, _ := send(t, s.URL(), "/v1/responses", fmt.Sprintf(`{"input":"and now","previous_response_id":%q}`, first.ID))
	second := s.Log()[1]
	if status != 200 || second.PromptTokens <= first.PromptTokens || second.CachedTokens < first.PromptTokens/16*16 {
		t.Errorf("status %d, first %+v, second %+v", status, first, second)
	}
	if status, _, answer := send(t, s.URL(), "/v1/responses", `{"input":"x","previous_response_id":"resp_none"}`); status != 404 {
		t.Errorf("%d %s", status, answer)
	}
}

func TestTextAndItsOnePartListAreTheSamePrompt(t *testing.T) {
	s := start(t, ServerOptions{})
	for _, b := range []string{
		`{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hello \u0041\n"}],"tools":[]}`,
		`{"stream":false,"messages":[{"content":[{"type":"text","text":"be kind","cache_control":{"type":"ephemeral"}}],"role":"system"},{"role":"user","content":[{"type":"text","text":"hello A\n"}]}]}`,
	} {
		if status, _, a := send(t, s.URL(), "/tokenize", b); status != 200 {
			t.Fatalf("%s", a)
		}
	}
	_, _, a := send(t, s.URL(), "/tokenize", `{"messages":[{"role":"user","content":"hello"}]}`)
	_, _, b := send(t, s.URL(), "/tokenize", `{"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}`)
	if !bytes.Equal(a, b) {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestCompletionsTakeListsAndTokenIDs(t *testing.T) {
	s := start(t, ServerOptions{})
	_, _, answer := send(t, s.URL(), "/v1/completions", `{"prompt":["one two","three four five"],"max_tokens":2}`)
	if n := bytes.Count(answer, []byte(`"index":`)); n != 2 {
		t.Errorf("%d choices: %s", n, answer)
	}
	_, _, answer = send(t, s.URL(), "/v1/completions", `{"prompt":[1,2,3,4,5],"max_tokens":2}`)
	if !bytes.Contains(answer, []byte(`"prompt_tokens":5,`)) {
		t.Errorf("%s", answer)
	}
	_, _, answer = send(t, s.URL(), "/v1/completions", `{"prompt":[[1,2,3],[4]],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`)
	if !bytes.Contains(answer, []byte(`"prompt_tokens":4,`)) || !bytes.Contains(answer, []byte(`"completion_tokens":4,`)) {
		t.Errorf("%s", answer)
	}
}

func TestTheJournalCountsCopies(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{Cost: slow, MaxBatchedTokens: 100}, Speed: 1})
	b := body(strings.Repeat("word", 5000), "")
	first := dial(t, s, "/v1/chat/completions?x=1", b)
	await(t, s, "the first", func(log []Entry) bool { return len(log) == 1 })
	second := dial(t, s, "/v1/chat/completions", b)
	await(t, s, "the second", func(log []Entry) bool { return len(log) == 2 })
	log := s.Log()
	if log[0].Copies != 1 || log[1].Copies != 2 || log[0].BodySHA256 != log[1].BodySHA256 || log[0].Query != "x=1" || log[0].BodyBytes != len(b) {
		t.Errorf("%+v", log)
	}
	first.conn.Close()
	second.conn.Close()
	await(t, s, "both to be gone", func(log []Entry) bool { return log[0].Outcome == Gone && log[1].Outcome == Gone })
	_, _, page := send(t, s.URL(), "/sim/log?path=/v1/chat", "")
	if !bytes.Contains(page, []byte(`"copies":2`)) {
		t.Errorf("%s", page)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	s := start(t, ServerOptions{KeepAlive: 50 * time.Millisecond})
	c := dial(t, s, "/v1/chat/completions", body("hi", ""))
	c.headers()
	io.ReadAll(c.res.Body)
	began := time.Now()
	if n, err := c.conn.Read(make([]byte, 1)); err != io.EOF || time.Since(began) < 30*time.Millisecond {
		t.Errorf("read %d, %v after %v", n, err, time.Since(began))
	}
}

func TestFaultsOnDemand(t *testing.T) {
	stream := body("hello", `,"stream":true,"max_tokens":6,"ignore_eos":true`)
	order := func(t *testing.T, s *Server, fault string) {
		t.Helper()
		if status, _, a := send(t, s.URL(), "/sim/fault", fault); status != 200 {
			t.Fatalf("%s", a)
		}
	}
	t.Run("a status with Retry-After, twice", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"status","status":429,"retry_after":"7","count":2}`)
		for i := 0; i < 3; i++ {
			c := dial(t, s, "/v1/messages", body("x", `,"max_tokens":3`))
			res := c.headers()
			if want := []int{429, 429, 200}[i]; res.StatusCode != want || want == 429 && res.Header.Get("Retry-After") != "7" {
				t.Errorf("request %d: %s %v", i, res.Status, res.Header)
			}
		}
		if s.Log()[0].Outcome != Refused || s.Log()[0].Fault != "status" {
			t.Errorf("%+v", s.Log()[0])
		}
	})
	t.Run("a reset before the headers", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"reset"}`)
		c := dial(t, s, "/v1/chat/completions", stream)
		if _, err := c.conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a reset after three events", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"reset","after":3}`)
		c := dial(t, s, "/v1/chat/completions", stream)
		c.headers()
		n := 0
		var err error
		for ; err == nil; n++ {
			_, err = c.event()
		}
		if n > 4 || err == io.EOF {
			t.Errorf("%d events, then %v", n-1, err)
		}
		await(t, s, "the abort", func(log []Entry) bool { return log[0].Outcome == Broken && !log[0].Aborted.IsZero() })
	})
	t.Run("a clean end without the final event", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"truncate","after":3}`)
		c := dial(t, s, "/v1/chat/completions", stream)
		c.headers()
		all, err := io.ReadAll(c.res.Body)
		if err != nil || bytes.Count(all, []byte("data: ")) != 3 || bytes.Contains(all, []byte("[DONE]")) {
			t.Errorf("%v %s", err, all)
		}
	})
	t.Run("an error as the first event of a 200 stream", func(t *testing.T) {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
			s := start(t, ServerOptions{})
			order(t, s, `{"kind":"error_event","status":503,"message":"out of luck"}`)
			status, _, a := send(t, s.URL(), path, stream)
			if first, _, _ := bytes.Cut(a, []byte("\n\n")); status != 200 || !bytes.Contains(first, []byte("out of luck")) {
				t.Errorf("%d %s", status, a)
			}
		}
	})
	t.Run("a stall", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"stall","after":2}`)
		c := dial(t, s, "/v1/chat/completions", stream)
		c.headers()
		c.event()
		c.event()
		await(t, s, "the stall", func(log []Entry) bool { return len(log) == 1 })
		c.conn.Close()
		await(t, s, "the close", func(log []Entry) bool { return !log[0].Left.IsZero() && !log[0].Aborted.IsZero() })
	})
	t.Run("an event of more than a megabyte", func(t *testing.T) {
		s := start(t, ServerOptions{})
		order(t, s, `{"kind":"big_event","bytes":1200000}`)
		_, _, a := send(t, s.URL(), "/v1/chat/completions", stream)
		if len(a) < 1_200_000 || !bytes.HasSuffix(a, []byte("data: [DONE]\n\n")) {
			t.Errorf("%d bytes", len(a))
		}
	})
	t.Run("refused connections", func(t *testing.T) {
		s := start(t, ServerOptions{})
		s.Inject(Fault{Kind: FaultRefuse})
		if c, err := net.Dial("tcp", s.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v %v", c, err)
		}
		s.ClearFaults()
		if status, _, _ := send(t, s.URL(), "/health", ""); status != 200 {
			t.Error(status)
		}
	})
	t.Run("a crash", func(t *testing.T) {
		s := start(t, ServerOptions{Options: Options{Cost: slow, MaxBatchedTokens: 100}, Speed: 1})
		c := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true`))
		c.headers()
		await(t, s, "the prefill", func(log []Entry) bool { return s.Engine().Stats().Prefilled > 300 })
		s.Inject(Fault{Kind: FaultCrash})
		if _, err := c.event(); err == nil || err == io.EOF {
			t.Errorf("got %v", err)
		}
		s.ClearFaults()
		if st := s.Engine().Stats(); st.Stored != 0 {
			t.Errorf("the cache survived: %+v", st)
		}
		if status, _, _ := send(t, s.URL(), "/v1/chat/completions", body("hi", "")); status != 200 {
			t.Error(status)
		}
	})
}

func TestMetricsFollowTheWork(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{KVTokens: 22_400, BlockTokens: 32}})
	send(t, s.URL(), "/v1/chat/completions", body(strings.Repeat("word", 500), ""))
	send(t, s.URL(), "/v1/chat/completions", body(strings.Repeat("word", 500), ""))
	_, _, page := send(t, s.URL(), "/metrics", "")
	for _, want := range []string{
		`kv_cache_size_tokens="22400",num_gpu_blocks="700"`, `vllm:num_requests_running{engine="0",model_name="sim"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0`, `vllm:prefix_cache_hits_total{engine="0",model_name="sim"} 480`, "process_start_time_seconds 1",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s, err := Start(ServerOptions{Options: Options{Cost: slow}})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s, "/v1/chat/completions", body(strings.Repeat("word", 20_000), `,"stream":true`))
	c.headers()
	s.Close()
	if _, err := c.event(); err == nil {
		t.Error("the stream goes on after Close")
	}
	s.Close() // again is harmless
}

// SGLang 0.5.23 calls an aborted response failed (serving_responses.py, _status_from_finish_reason): without any item if
// there was no text.
func TestSGLangsAbortedResponsesAreFailed(t *testing.T) {
	for _, c := range []struct {
		prompt string
		tokens bool
	}{{strings.Repeat("word", 20_000), false}, {"hello", true}} {
		for _, stream := range []bool{false, true} {
			s := start(t, ServerOptions{Options: Options{Mode: SGLang, MaxBatchedTokens: 100, Cost: slow}, Speed: 1})
			client := dial(t, s, "/v1/responses", fmt.Sprintf(`{"input":%q,"stream":%v,"max_output_tokens":50000}`, c.prompt, stream))
			await(t, s, "the work to begin", func(log []Entry) bool {
				return s.Engine().Stats().Prefilled > 100 || c.tokens && len(log) == 1 && log[0].OutputTokens > 2
			})
			send(t, s.URL(), "/abort_request", `{"abort_all":true}`)
			client.headers()
			rest, err := io.ReadAll(client.res.Body)
			if err != nil {
				t.Fatal(err)
			}
			answer, last := string(rest), string(rest)
			if stream {
				events := strings.Split(strings.TrimSpace(answer), "\n\n")
				last = events[len(events)-1]
				if !strings.HasPrefix(last, "event: response.failed\n") || strings.Contains(answer, "response.output_item.done") != c.tokens {
					t.Errorf("tokens %v: %s", c.tokens, answer)
				}
			}
			if !strings.Contains(last, `"status":"failed"`) || !strings.Contains(last, `"error":{"code":"server_error","message":"`) ||
				!strings.Contains(last, `"input_tokens":0`) || strings.Contains(last, `"output":[]`) == c.tokens {
				t.Errorf("tokens %v, stream %v: %s", c.tokens, stream, last)
			}
		}
	}
}
