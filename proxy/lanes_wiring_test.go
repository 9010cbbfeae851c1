package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// A long request that finds no place is told when there may be one: when what is held has been computed, which takes long.
func TestRefusedLongPromptsAreToldWhenToComeBack(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings+"\nlanes.max_held = 4", e.fakeEngine)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	for i := range 5 {
		later(p, ctx, chatStream(words(fmt.Sprint("long", i), 60_000)), "Authorization", fmt.Sprint("Bearer ", i))
	}
	eventually(t, "four to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 4 })
	told := map[int]bool{}
	for i := range 20 {
		got := p.post("/v1/chat/completions", chatStream(words("late", 60_000)), "Authorization", fmt.Sprint("Bearer late", i))
		if got.status != 429 || !strings.Contains(got.body, "long_queue_full") {
			t.Fatalf("%d %s", got.status, got.body)
		}
		seconds, _ := strconv.Atoi(got.header.Get("Retry-After"))
		if want := int(p.upstreams()["a"].lanes.retryAfter().Seconds()); seconds < 10 || seconds < want || seconds > 3*want/2+3 {
			t.Errorf("told to come back in %d s, and the lanes say %d s: about five prompts of 60,000 tokens at 8,000 a second", seconds, want)
		}
		told[seconds] = true
	}
	if len(told) < 4 {
		t.Errorf("all are to come back at once: after %v s", told)
	}
}

// Held bodies take memory, so they are bounded in bytes too.
func TestHeldBodiesAreBoundedInBytes(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings+"\nlanes.max_held_bytes = \"300KB\"", e.fakeEngine)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	later(p, ctx, chatStream(words("first", 20_000)), "Authorization", "Bearer 1")
	wait(t, "the first long prompt", e.long)
	for i := range 2 {
		later(p, ctx, chatStream(words(fmt.Sprint("long", i), 25_000)), "Authorization", fmt.Sprint("Bearer ", i))
	}
	eventually(t, "two to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 2 })
	got := p.post("/v1/chat/completions", chatStream(words("another", 50_000)), "Authorization", "Bearer other")
	if got.status != 429 || !strings.Contains(got.body, "long_queue_full") {
		t.Errorf("400 KB of bodies are held where 300 are allowed: %d %.200s", got.status, got.body)
	}
}

// An SGLang request with a name of the client's own cannot be stopped at once: it is sent once and stays, while others on
// the same engine are taken back as ever.
func TestWhoeverCannotBeStoppedIsNotTakenBack(t *testing.T) {
	e, p := simulated(t, sim.SGLang, "lanes.border = 1000\nlanes.target = \"10ms\"")
	run := func(extra string, id string) (preempted string) {
		e.ClearLog()
		body := chatBody(extra+`"stream":true,`, []string{words(id, 24_000)})
		long := later(p, context.Background(), body, "X-Session-Id", id, "X-Request-Id", id)
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
		if got.err != nil || !strings.HasSuffix(got.text, doneEvent) {
			t.Errorf("%s got %v %.200q", id, got.err, got.text)
		}
		onlyOneCopyEach(t, e.Log())
		return got.header.Get("X-Warmring-Preempted")
	}
	if n := run(`"rid":"mine",`, "named"); n != "" {
		t.Errorf("it was taken back %s times", n)
	}
	if n := run("", "unnamed"); n == "" && !p.upstreams()["e"].lanes.view().CanPreempt {
		t.Error("the engine is taken for one that cannot stop")
	}
}

// abortRace is an SGLang that is told to abort a long unstreamed prompt in the moment in which its answer is complete: it
// answers the first run as given.
func abortRace(t *testing.T, path, body, first string) (got answer, runs int) {
	t.Helper()
	var mu sync.Mutex
	aborted, begun := make(chan struct{}), make(chan struct{}, 8)
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/abort_request":
			select {
			case <-aborted:
			default:
				close(aborted)
			}
		case len(b) > laneLong:
			mu.Lock()
			runs++
			again := runs > 1
			mu.Unlock()
			begun <- struct{}{}
			if again {
				fmt.Fprint(w, `{"again":true}`)
				return
			}
			select {
			case <-aborted:
				fmt.Fprint(w, first)
			case <-r.Context().Done():
			}
		default:
			select {
			case <-aborted:
				events(w, roleEvent, helloEvent, stopEvent, doneEvent)
			case <-r.Context().Done():
			}
		}
	})
	p := startProxyTOML(t, fmt.Sprintf("listen = \"127.0.0.1:0\"\n%s\nlanes.slices = false\n[[engine]]\nname = \"a\"\nkind = \"sglang\"\nurl = %q\n", laneSettings, e.URL))
	eventually(t, "the engine to be ready", func() bool { return placerState(p.fleet.Engines()[0].State()).String() == "ready" })
	long := make(chan answer, 1)
	go func() { long <- p.post(path, body, "X-Session-Id", "long") }()
	wait(t, "the long prompt", begun)
	short := later(p, context.Background(), chatStream("short"), "X-Session-Id", "short")
	got = wait(t, "the long answer", long)
	wait(t, "the short turn", short)
	mu.Lock()
	defer mu.Unlock()
	return got, runs
}

// C134: an answer that was complete before the abort took effect is the client's, whatever words are in it; what an abort
// made of an answer never is.
func TestAWholeAnswerWinsAgainstItsAbort(t *testing.T) {
	text := words("long", 20_000)
	chat := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)
	messages := fmt.Sprintf(`{"model":"m","max_tokens":8,"messages":[{"role":"user","content":%q}]}`, text)
	responses := fmt.Sprintf(`{"model":"m","input":%q}`, text)
	for _, c := range []struct {
		what, path, body, first string
		wins                    bool
	}{
		{"chat about aborts", "/v1/chat/completions", chat, `{"choices":[{"index":0,"message":{"role":"assistant","content":"say \"abort\""},"finish_reason":"stop"}],"usage":{"prompt_tokens":20000,"completion_tokens":3}}`, true},
		{"chat with a tool named abort", "/v1/chat/completions", chat, `{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"abort","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`, true},
		{"chat aborted", "/v1/chat/completions", chat, `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"abort"}],"usage":{"prompt_tokens":0}}`, false},
		{"messages", "/v1/messages", messages, `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"max_tokens","usage":{"input_tokens":20000,"output_tokens":8}}`, true},
		{"messages aborted", "/v1/messages", messages, `{"type":"message","role":"assistant","content":[{"type":"text","text":""}],"stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0}}`, false},
		{"messages, maybe aborted in its middle", "/v1/messages", messages, `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":20000,"output_tokens":8}}`, false},
		{"responses", "/v1/responses", responses, `{"id":"r","object":"response","status":"completed","output":[],"usage":{"input_tokens":20000,"output_tokens":8}}`, true},
		{"responses aborted", "/v1/responses", responses, `{"id":"r","object":"response","status":"failed","output":[],"usage":{"input_tokens":20000,"output_tokens":2}}`, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			got, runs := abortRace(t, c.path, c.body, c.first)
			want, times := c.first, 1
			if !c.wins {
				want, times = `{"again":true}`, 2
			}
			if got.status != 200 || got.body != want || runs != times {
				t.Errorf("after %d runs the client has %d %.300s; want %s after %d", runs, got.status, got.body, want, times)
			}
		})
	}
}

// A client is told how long its request was held, unless headers are switched off.
func TestHeldRequestsSayForHowLong(t *testing.T) {
	for _, headers := range []bool{true, false} {
		e := newLaneEngine(t, "a")
		p := startProxy(t, fmt.Sprintf("%s\nheaders.response = %v", laneSettings, headers), e.fakeEngine)
		first := later(p, context.Background(), chatStream(words("first", 20_000)), "X-Session-Id", "first")
		wait(t, "the first long prompt", e.long)
		second := later(p, context.Background(), chatStream(words("second", 20_000)), "X-Session-Id", "second")
		eventually(t, "the second to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 1 })
		time.Sleep(20 * time.Millisecond)
		e.token <- struct{}{}
		a := wait(t, "the first answer", first)
		wait(t, "the second long prompt", e.long)
		e.token <- struct{}{}
		b := wait(t, "the second answer", second)
		expectWhole(t, "the first", a)
		expectWhole(t, "the second", b)
		held, err := strconv.ParseFloat(b.header.Get("X-Warmring-Held"), 64)
		switch {
		case headers && (err != nil || held < 0.02 || held > 60):
			t.Errorf("held for %q seconds", b.header.Get("X-Warmring-Held"))
		case !headers && b.header.Get("X-Warmring-Held") != "":
			t.Error("told although headers are off")
		case a.header.Get("X-Warmring-Held") != "":
			t.Errorf("the first was held for %s", a.header.Get("X-Warmring-Held"))
		}
		eventually(t, "the log line", func() bool { return strings.Contains(p.log.String(), "lane_reason") })
		if log := p.log.String(); !strings.Contains(log, "lane_reason=quiet") && !strings.Contains(log, `"lane_reason":"quiet"`) {
			t.Errorf("the log does not say why it was let go: %s", log)
		}
	}
}

// What a request that was sent again finds in the engine's cache tells which share of an aborted run the engine keeps: nearly
// all at vLLM, all but the chunk in flight at SGLang.
func TestReplaysTellWhatTheEngineKept(t *testing.T) {
	for mode, least := range map[sim.Mode]float64{sim.VLLM: 0.8, sim.SGLang: 0.5} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e, p := simulated(t, mode, "lanes.slices = false")
			for i := range 4 { // the engine's speed is known
				if _, _, _, err := ask(p, chatStream(words(fmt.Sprint("other", i), 3000))); err != nil {
					t.Fatal(err)
				}
			}
			up := p.upstreams()["e"]
			for i := range fewKept {
				e.ClearLog()
				long := later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 12_000)), "X-Session-Id", fmt.Sprint("long", i))
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if err := e.Await(ctx, func(log []sim.Entry) bool { return len(log) > 0 && log[0].PromptTokens > 0 }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(600 * time.Millisecond) // half of it is computed
				up.lanes.mu.Lock()
				for _, r := range up.lanes.members {
					r.preempt()
				}
				up.lanes.mu.Unlock()
				if got := wait(t, "the answer", long); got.err != nil || got.header.Get("X-Warmring-Preempted") != "1" {
					t.Errorf("taken back %q times: %v", got.header.Get("X-Warmring-Preempted"), got.err)
				}
				p.settled()
			}
			if share := up.kept.share(time.Now()); share < least || share > 1 {
				t.Errorf("the share that was kept is %v, want %v or more", share, least)
			}
		})
	}
}

// An engine whose short turns wait in hundreds gets no more of them: the next one is refused at once, in the shape of its API.
func TestShortTurnsThatWaitAreBounded(t *testing.T) {
	e := newLaneEngine(t, "a")
	p := startProxy(t, laneSettings+"\nlanes.max_waiting = 3", e.fakeEngine)
	var waiting []<-chan reply
	for i := range 3 {
		waiting = append(waiting, later(p, context.Background(), chatStream(fmt.Sprint("hi", i)), "X-Session-Id", fmt.Sprint("s", i)))
	}
	eventually(t, "three to wait", func() bool { return p.upstreams()["a"].lanes.view().Waiting == 3 })
	for path, shape := range map[string]string{"/v1/chat/completions": `"code":"short_queue_full"`, "/v1/messages": `"type":"rate_limit_error"`} {
		got := p.post(path, chat("one more"), "X-Session-Id", "more")
		if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); got.status != 429 || !strings.Contains(got.body, shape) || !strings.Contains(got.body, "short") || err != nil || seconds < 1 {
			t.Errorf("%s: %d %s %v", path, got.status, got.body, got.header)
		}
	}
	if n := p.metric(`warmring_lane_crowded_total{engine="a"}`); n != "2" {
		t.Errorf("%s are counted", n)
	}
	close(e.short)
	for _, short := range waiting {
		expectWhole(t, "a short turn", wait(t, "a short turn", short))
	}
	p.settled()
	expectWhole(t, "a later one", wait(t, "a later one", later(p, context.Background(), chatStream("again"), "X-Session-Id", "more")))
	nothingRuns(t, p.upstreams()["a"].lanes)
}

// nothingRuns checks that an engine's lanes know of no request any more.
func nothingRuns(t *testing.T, l *engineLanes) {
	t.Helper()
	eventually(t, "the lanes to be empty", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.running == 0 && len(l.members) == 0
	})
}
