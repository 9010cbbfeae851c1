package sim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// lastByte is a client that looks into the journal with every piece of the answer that reaches it.
type lastByte struct {
	*httptest.ResponseRecorder
	s     *Server
	first Entry // when the headers came
	seen  Entry // at the last byte
}

func (c *lastByte) WriteHeader(status int) {
	c.first = c.s.Log()[0]
	c.ResponseRecorder.WriteHeader(status)
}

func (c *lastByte) Write(b []byte) (int, error) {
	for _, e := range c.s.Log() {
		if strings.HasPrefix(e.Path, "/v1/") {
			c.seen = e
		}
	}
	return c.ResponseRecorder.Write(b)
}

// Who has the end of an answer may read in the journal how it ended: what is noted later looks like a request that is still
// alive when the client sends its next one.
func TestTheJournalKnowsTheEndBeforeTheClient(t *testing.T) {
	paths := map[string]string{"/v1/chat/completions": body("hello", ""), "/v1/completions": `{"prompt":"hello"}`, "/v1/messages": body("hello", `,"max_tokens":4`), "/v1/responses": `{"input":"hello"}`}
	for _, mode := range []Mode{VLLM, SGLang, Llama} {
		for path, text := range paths {
			for _, c := range []struct {
				what    string
				stream  bool
				fault   Fault
				body    string // "" = the path's
				abort   bool
				outcome Outcome
			}{
				{"answered", false, Fault{}, "", false, Answered},
				{"answered", true, Fault{}, "", false, Answered},
				{"answered after a stall", true, Fault{Kind: FaultStall, After: 1, Delay: time.Millisecond}, "", false, Answered},
				{"refused", false, Fault{}, `{"messages":`, false, Refused},
				{"refused by a fault", true, Fault{Kind: FaultStatus, Status: 503}, "", false, Refused},
				{"broken by an error inside", true, Fault{Kind: FaultErrorEvent, After: 1, Status: 500}, "", false, Broken},
				{"aborted", false, Fault{}, "", true, Gone},
				{"aborted", true, Fault{}, "", true, Gone},
			} {
				name := fmt.Sprint(mode, " ", path, " ", c.what, ", stream ", c.stream)
				opt := ServerOptions{Options: Options{Mode: mode, MaxBatchedTokens: 100, Cost: slow}}
				if c.abort {
					opt.Speed = 4 // it would take 5 s
				}
				s := start(t, opt)
				if c.body == "" {
					c.body = text
				}
				if c.stream {
					c.body = strings.TrimSuffix(c.body, "}") + `,"stream":true}`
				}
				if c.abort {
					c.body = strings.Replace(c.body, "hello", strings.Repeat("word", 20_000), 1)
				}
				if c.fault.Kind != "" {
					s.Inject(c.fault)
				}
				client := &lastByte{ResponseRecorder: httptest.NewRecorder(), s: s}
				over := make(chan struct{})
				go func() {
					defer close(over)
					s.handle(client, httptest.NewRequest(http.MethodPost, path, strings.NewReader(c.body)))
				}()
				if c.abort {
					await(t, s, "the prefill to begin", func([]Entry) bool { return s.Engine().Stats().Prefilled > 0 })
					s.Engine().AbortWhere(func(string) bool { return true })
				}
				<-over
				e := s.Log()[0]
				if e.Outcome != c.outcome || e.Done.IsZero() || e.Status == 0 {
					t.Errorf("%s: %+v", name, e)
				}
				if late := mode == SGLang && path != "/v1/messages" && path != "/v1/responses"; c.abort && late && client.first.Done.IsZero() {
					t.Errorf("%s: the headers came before the end was noted, though it was the first token's", name)
				}
				// A fault inside a stream, and what it left behind in the engine, end after it has been told.
				if c.outcome != Broken && !reflect.DeepEqual(client.seen, e) || client.seen.Outcome != e.Outcome {
					t.Errorf("%s: at the last byte the journal said\n %+v, in the end\n %+v", name, client.seen, e)
				}
			}
		}
	}
}

// A close counts from when the client did it, not from when a busy engine notices.
func TestTheJournalKnowsWhoHadClosedAtAnArrival(t *testing.T) {
	s := start(t, ServerOptions{Options: Options{Mode: SGLang, MaxBatchedTokens: 100, Cost: slow}, Speed: 1}) // looks for closes every 4 s
	long := body(strings.Repeat("word", 20_000), `,"stream":true`)
	staying, leaving := dial(t, s, "/v1/chat/completions", long), dial(t, s, "/v1/chat/completions", long)
	await(t, s, "both", func(log []Entry) bool { return len(log) == 2 })
	leaving.conn.Close()
	send(t, s.URL(), "/v1/models", "")
	log := s.Log()
	closed := 0
	for _, e := range log[:2] {
		if !e.Closed.IsZero() {
			closed++
			if e.Closed != log[2].Time || !e.Done.IsZero() {
				t.Errorf("closed %v, the next came %v, the engine ended it %v", e.Closed, log[2].Time, e.Done)
			}
		}
	}
	if closed != 1 {
		t.Errorf("%d of two are closed", closed)
	}
	staying.conn.Close()
}
