package proxy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring/prompt"
)

// laneEngine is an engine whose long prompts compute until the test lets them go or the proxy takes them back, and whose
// short turns have their first token when the test says so.
type laneEngine struct {
	*fakeEngine
	long  chan [sha256.Size]byte // a long prompt has come
	token chan struct{}          // lets one long prompt have its answer
	short chan struct{}          // closed: short turns are answered
	live  atomic.Int32           // long prompts in work
	most  atomic.Int32
}

const laneLong = 8 << 10 // bytes of a body; border = 1000 tokens makes all longer ones long

func newLaneEngine(t *testing.T, name string) *laneEngine {
	e := &laneEngine{long: make(chan [sha256.Size]byte, 16), token: make(chan struct{}), short: make(chan struct{})}
	e.fakeEngine = newFakeEngine(t, name, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := e.short
		if r.Header.Get("X-Quick") != "" {
			events(w, roleEvent, helloEvent, stopEvent, usageEvent, doneEvent)
			return
		}
		if len(body) > laneLong {
			n := e.live.Add(1)
			defer e.live.Add(-1)
			e.most.Store(max(e.most.Load(), n))
			e.long <- sha256.Sum256(body)
			answer = e.token
		}
		select {
		case <-answer:
			events(w, roleEvent, helloEvent, stopEvent, usageEvent, doneEvent)
		case <-r.Context().Done():
		}
	})
	e.toml = "kind = \"vllm\""
	return e
}

// laneSettings make everything above a thousand tokens long, and give short turns nearly all of the contended time: one
// that was taken back stays in the proxy for a second.
const laneSettings = "lanes.border = 1000\nlanes.share = 0.1\nlanes.target = \"10ms\""

// reply is what one client got.
type reply struct {
	header http.Header
	text   string
	err    error
}

func later(p *proxyUnderTest, ctx context.Context, body string, header ...string) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", p.url+"/v1/chat/completions", strings.NewReader(body))
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- reply{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 && err == nil {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, b)
		}
		got <- reply{resp.Header, string(b), err}
	}()
	return got
}

func wait[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// wholeAnswer is what a laneEngine says.
const wholeAnswer = roleEvent + helloEvent + stopEvent + usageEvent + doneEvent

func expectWhole(t *testing.T, who string, r reply) {
	t.Helper()
	if r.err != nil || r.text != wholeAnswer {
		t.Errorf("%s got %v, %.300q", who, r.err, r.text)
	}
}

// takenBack sends a long prompt and a short turn, and returns when the long one was taken back for it.
func takenBack(t *testing.T, p *proxyUnderTest, e *laneEngine, ctx context.Context, body string) (long, short <-chan reply) {
	t.Helper()
	long = later(p, ctx, body, "X-Session-Id", "long")
	wait(t, "the long prompt", e.long)
	short = later(p, context.Background(), chatStream("short turn"), "X-Session-Id", "short")
	eventually(t, "it to be taken back", func() bool { return e.live.Load() == 0 })
	return long, short
}

// The client of a request that was taken back leaves before it is sent again: nothing of it is sent or held any more.
func TestAClientLeavesBetweenAbortAndReplay(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings, e.fakeEngine)
	ctx, leave := context.WithCancel(context.Background())
	long, short := takenBack(t, p, e, ctx, chatStream(words("long", 20000)))
	leave()
	if got := wait(t, "the client to be gone", long); got.err == nil {
		t.Errorf("it had its answer: %.200q", got.text)
	}
	eventually(t, "the request to be forgotten", func() bool { return p.upstreams()["a"].lanes.view().Back == 0 })
	close(e.short)
	expectWhole(t, "the short turn", wait(t, "the short turn", short))
	p.settled()
	if n := len(e.got()); n != 2 {
		t.Errorf("the engine was sent %d requests, want 2", n)
	}
}

// The engine dies while a request that was taken back from it is in the proxy: another engine answers it, and the short
// turn as well.
func TestAnEngineDiesBetweenAbortAndReplay(t *testing.T) {
	both := map[string]*laneEngine{"a": newLaneEngine(t, "a"), "b": newLaneEngine(t, "b")}
	p := startProxy(t, laneSettings, both["a"].fakeEngine, both["b"].fakeEngine)
	warm := func(i int) []string { return []string{words(fmt.Sprint("session", i), 900)} }
	at := map[string][]int{} // sessions by engine
	for i := range 12 {
		got := wait(t, "a first turn", later(p, context.Background(), chatStream(warm(i)...), "X-Session-Id", fmt.Sprint("short", i), "X-Quick", "1"))
		expectWhole(t, "a first turn", got)
		name := got.header.Get("X-Warmring-Engine")
		at[name] = append(at[name], i)
	}
	long := later(p, context.Background(), chatStream(words("long", 20000)), "X-Session-Id", "long")
	var died, other *laneEngine
	select {
	case <-both["a"].long:
		died, other = both["a"], both["b"]
	case <-both["b"].long:
		died, other = both["b"], both["a"]
	case <-time.After(10 * time.Second):
		t.Fatal("the long prompt came nowhere")
	}
	var shorts []<-chan reply
	for _, i := range at[died.name] {
		shorts = append(shorts, later(p, context.Background(), chatStream(append(warm(i), "answer", "next")...), "X-Session-Id", fmt.Sprint("short", i)))
	}
	eventually(t, "it to be taken back", func() bool { return died.live.Load() == 0 })
	died.Listener.Close()
	died.CloseClientConnections()
	close(other.short)
	other.token <- struct{}{}
	got := wait(t, "the long answer", long)
	expectWhole(t, "the long prompt", got)
	if got.header.Get("X-Warmring-Engine") != other.name || got.header.Get("X-Warmring-Preempted") == "" {
		t.Errorf("it was answered with %v", got.header)
	}
	for i, short := range shorts {
		expectWhole(t, fmt.Sprint("short turn ", i), wait(t, "a short turn", short))
	}
}

// The engine answers in the very moment in which the proxy takes the request back, many times at random distances: either
// the answer wins or the request is sent again, and each client has one whole answer.
func TestAnEngineCommitsInTheMomentOfTheAbort(t *testing.T) {
	const engines = 6
	var all sync.WaitGroup
	var replayed, kept atomic.Int32
	for n := range engines {
		all.Go(func() {
			var mu sync.Mutex
			type run struct {
				gone                 <-chan struct{} // its client has closed
				answered, superseded bool
			}
			latest := map[string]*run{}
			random := rand.New(rand.NewPCG(uint64(n), 1))
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				delay := 15 * time.Millisecond
				me := &run{gone: r.Context().Done()}
				if len(body) > laneLong {
					mu.Lock()
					before := latest[string(body)]
					latest[string(body)] = me
					if before == nil {
						// Its minimum run is 288 ms here, by the step that is guessed, and then the short turn's abort is due.
						delay = 280*time.Millisecond + time.Duration(random.Int64N(int64(40*time.Millisecond)))
					} else {
						before.superseded = !before.answered
					}
					mu.Unlock()
					if before != nil && before.superseded { // it ends by its client's close alone, however late a busy server notices
						select {
						case <-before.gone:
						case <-time.After(5 * time.Second):
							t.Error("a request was sent again while its first copy ran on")
						}
					}
				}
				select {
				case <-time.After(delay):
				case <-me.gone:
					return
				}
				mu.Lock()
				superseded := me.superseded
				me.answered = !superseded
				mu.Unlock()
				if superseded {
					<-me.gone
					return
				}
				events(w, roleEvent, helloEvent, stopEvent, usageEvent, doneEvent)
			})
			e.toml = "kind = \"vllm\""
			p := startProxy(t, laneSettings, e)
			for round := range 4 {
				long := later(p, context.Background(), chatStream(words(fmt.Sprintf("long %d %d", n, round), 20000)), "X-Session-Id", fmt.Sprint("long", round))
				time.Sleep(275 * time.Millisecond)
				short := later(p, context.Background(), chatStream("short turn"), "X-Session-Id", "short")
				got := <-long
				expectWhole(t, "the long prompt", got)
				expectWhole(t, "the short turn", <-short)
				if got.header.Get("X-Warmring-Preempted") != "" {
					replayed.Add(1)
				} else {
					kept.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d answers won, %d requests were sent again", kept.Load(), replayed.Load())
}

// A body of 32 MB is held behind another long prompt, taken back, and sent again: the same bytes each time.
func TestAHugeBodyIsHeldAndReplayed(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings, e.fakeEngine)
	first := later(p, context.Background(), chatStream(words("first", 20000)), "X-Session-Id", "first")
	wait(t, "the first long prompt", e.long)
	body := chatStream(words("huge", 8<<20))
	sum := sha256.Sum256([]byte(body))
	huge := later(p, context.Background(), body, "X-Session-Id", "huge")
	eventually(t, "the huge one to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 1 })
	e.token <- struct{}{}
	expectWhole(t, "the first one", wait(t, "the first answer", first))
	for range 2 {
		if got := wait(t, "the huge prompt", e.long); got != sum {
			t.Errorf("the engine got other bytes")
		}
		if e.most.Load() != 1 {
			t.Fatalf("%d long prompts at once", e.most.Load())
		}
		if len(e.got()) == 2 {
			short := later(p, context.Background(), chatStream("short turn"), "X-Session-Id", "short")
			eventually(t, "it to be taken back", func() bool { return e.live.Load() == 0 })
			close(e.short)
			expectWhole(t, "the short turn", wait(t, "the short turn", short))
		}
	}
	e.token <- struct{}{}
	expectWhole(t, "the huge one", wait(t, "the huge answer", huge))
}

// The proxy stops while long prompts are held: those in work are served, the held ones are served or told, none vanishes.
func TestShutdownWithRequestsHeld(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings, e.fakeEngine)
	var clients []<-chan reply
	for i := range 4 {
		clients = append(clients, later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 20000)), "X-Session-Id", fmt.Sprint("long", i)))
	}
	wait(t, "one in work", e.long)
	eventually(t, "the others to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 3 })
	p.stop()
	served := make(chan struct{})
	defer close(served)
	go func() {
		for {
			select {
			case e.token <- struct{}{}:
			case <-served:
				return
			}
		}
	}()
	whole := 0
	for i, client := range clients {
		got := wait(t, "an answer", client)
		switch {
		case got.err == nil && got.text == wholeAnswer:
			whole++
		case got.err != nil && strings.Contains(got.err.Error(), "status 503") && strings.Contains(got.err.Error(), "shutting_down"):
		default:
			t.Errorf("client %d got %v, %.200q", i, got.err, got.text)
		}
	}
	t.Logf("%d of %d were served", whole, len(clients))
	if whole == 0 {
		t.Error("the one in work was not served")
	}
	p.shutdown()
}

// C134: SGLang ends an aborted request with a 200 whose finish reason is "abort". On all four families, streamed or not,
// that goes nowhere: the client has the answer that it would have had without the preemption.
func TestAnswersToAbortsGoNowhere(t *testing.T) {
	paths := map[prompt.Family]string{prompt.Chat: "/v1/chat/completions", prompt.Completions: "/v1/completions", prompt.Messages: "/v1/messages", prompt.Responses: "/v1/responses"}
	for family, path := range paths {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(family, " stream ", stream), func(t *testing.T) {
				t.Parallel()
				e, p := simulated(t, sim.SGLang, "lanes.border = 1000\nlanes.target = \"10ms\"\nlanes.slices = false")
				body := func(text string) string {
					input := fmt.Sprintf(`"messages":[{"role":"user","content":%q}]`, text)
					limit := "max_tokens"
					switch family {
					case prompt.Completions:
						input = fmt.Sprintf(`"prompt":%q`, text)
					case prompt.Responses:
						input, limit = fmt.Sprintf(`"input":%q`, text), "max_output_tokens"
					}
					return fmt.Sprintf(`{"model":"m","stream":%v,%q:8,%s}`, stream, limit, input)
				}
				long := make(chan answer, 1)
				e.ClearLog()
				go func() {
					long <- p.post(path, body(words("long", 24000)), "X-Session-Id", "long", "X-Request-Id", "long")
				}()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if err := e.Await(ctx, func(log []sim.Entry) bool { return len(log) > 0 }); err != nil {
					t.Fatal(err)
				}
				for i := 0; len(long) == 0; i++ {
					time.Sleep(100 * time.Millisecond) // a person's pause, not a proof
					if got := p.post("/v1/chat/completions", chatStream(fmt.Sprint("short ", i)), "X-Session-Id", fmt.Sprint("short", i%3)); got.status != 200 {
						t.Errorf("a short turn got %d %s", got.status, got.body)
					}
				}
				got := <-long
				onlyOneCopyEach(t, e.Log())
				aborted, longs := 0, 0
				for _, entry := range e.Log() {
					if entry.BodyBytes > laneLong {
						if longs++; entry.Outcome == sim.Gone || entry.OutputTokens == 0 {
							aborted++
						}
					}
				}
				taken := got.header.Get("X-Warmring-Preempted")
				if taken == "" || taken == "0" || longs < 2 {
					t.Errorf("it was taken back %q times, sent %d times", taken, longs)
				}
				t.Logf("sent %d times, %d ended without a token, taken back %s times", longs, aborted, taken)
				if got.err != nil || got.status != 200 || strings.Contains(got.body, `"abort"`) || strings.Contains(got.body, "aborted") {
					t.Errorf("the client got %d %v %.500q", got.status, got.err, got.body)
				}
				// The simulated engine's answers follow from the prompt: asked again, it says the same.
				again := p.post(path, body(words("long", 24000)), "X-Session-Id", "long")
				if text, want := spoken(family, stream, got.body), spoken(family, stream, again.body); text == "" || text != want {
					t.Errorf("the answer is %q, without preemption %q", text, want)
				}
			})
		}
	}
}

// spoken is what the model says in an answer, and how many tokens it tells.
func spoken(family prompt.Family, stream bool, body string) string {
	var text strings.Builder
	for _, part := range strings.Split(body, `"`) {
		if strings.HasPrefix(part, "tok") || strings.Contains(part, " tok") {
			text.WriteString(part)
		}
	}
	if !stream {
		u, _ := wire.ReadAnswer(family, []byte(body))
		return fmt.Sprint(u.Output, " tokens", text.String())
	}
	var s wire.Sniffer
	s.Reset(family)
	_, _ = s.Write([]byte(body))
	if !s.Finished() {
		return ""
	}
	return fmt.Sprint(s.Usage().Output, " tokens", text.String())
}
