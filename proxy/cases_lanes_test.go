package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// calm are lanes in which everything above a thousand tokens is long and goes whole, and nothing is taken back.
const calm = "lanes.border = 1000\nlanes.slices = false\nlanes.target = \"1m\""

// C135: six long cold prompts come at once to four engines, and short turns all the while. Each engine computes one of them at a
// time and the others wait in the proxy. The bound is one per engine, not so many of the fleet: sessions stay where they are warm, so an
// engine that is kept free would help only its own short turns; those of the others get past their long prompt (C134).
func TestSixLongPromptsOnFourEngines(t *testing.T) {
	var engines []*laneEngine
	var fakes []*fakeEngine
	for i := range 4 {
		e := newLaneEngine(t, string(rune('a'+i)))
		close(e.short)
		engines, fakes = append(engines, e), append(fakes, e.fakeEngine)
	}
	p := startProxy(t, calm, fakes...)
	inWork := func() (n int) {
		for _, e := range engines {
			n += int(e.live.Load())
		}
		return n
	}
	held := func() (n int) {
		for _, e := range engines {
			n += p.upstreams()[e.name].lanes.view().Held
		}
		return n
	}
	var long []<-chan reply
	for i := range 6 {
		long = append(long, later(p, context.Background(), chatStream(words(fmt.Sprint("cold", i), 20_000)), "X-Session-Id", fmt.Sprint("cold", i)))
	}
	eventually(t, "all six to be in work or held", func() bool { return inWork()+held() == 6 })
	if inWork() > 4 || held() < 2 {
		t.Errorf("%d are in work, %d held", inWork(), held())
	}
	t.Logf("%d in work, %d held", inWork(), held())
	for i := range 20 { // none of them has its first token, and none of these waits for that
		expectWhole(t, "a short turn", wait(t, "a short turn", later(p, context.Background(), chatStream(fmt.Sprint("short ", i)), "X-Session-Id", fmt.Sprint("short", i))))
	}
	for _, e := range engines {
		close(e.token)
	}
	for i, r := range long {
		expectWhole(t, fmt.Sprint("long prompt ", i), wait(t, "a long prompt", r))
	}
	for _, e := range engines {
		if n := e.most.Load(); n > 1 {
			t.Errorf("%s computed %d long prompts at once", e.name, n)
		}
	}
}

// C137: long prompts come faster than the engine computes them, while eight answers are being written. The engine never gets the next
// one before the last has its first token: no pause of an answer is longer than one prefill.
func TestLongPromptsNeverOverlapBesideRunningAnswers(t *testing.T) {
	e, p := simulated(t, sim.VLLM, calm)
	ctx, leave := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	for i := range 8 {
		body := strings.Replace(chatStream(fmt.Sprint("story ", i)), `"model":"m",`, `"model":"m","max_tokens":100000,`, 1)
		writing.Go(func() { <-later(p, ctx, body) })
	}
	eventually(t, "eight answers to be written", func() bool { return p.upstreams()["e"].lanes.view().Decoding == 8 })
	e.ClearLog()
	var long []<-chan reply
	for i := range 4 {
		long = append(long, later(p, context.Background(), chatStream(words(fmt.Sprint("long", i), 6000)), "X-Session-Id", fmt.Sprint("long", i)))
	}
	for i, r := range long {
		if got := wait(t, "a long prompt", r); got.err != nil || !strings.HasSuffix(got.text, doneEvent) {
			t.Errorf("long prompt %d: %v, %.200q", i, got.err, got.text)
		}
	}
	var last sim.Entry
	n := 0
	for _, entry := range e.Log() {
		if entry.PromptTokens < 1000 {
			continue
		}
		if n++; n > 1 && entry.Time.Before(last.FirstToken) {
			t.Errorf("one was sent %v before the one in work had its first token", last.FirstToken.Sub(entry.Time))
		}
		last = entry
	}
	if n != 4 {
		t.Errorf("the engine has computed %d long prompts, want 4", n)
	}
	leave()
	writing.Wait()
}

// C143: the place of a long prompt is free when its prefill is over, whichever way: by its first token, by its client's leave, by an
// error. Until then the next one waits in the proxy, and then it goes at once.
func TestThePlaceOfALongPromptIsFreeWhenItsPrefillIsOver(t *testing.T) {
	for _, end := range []string{"first token", "client leaves", "error", "engine breaks off"} {
		t.Run(end, func(t *testing.T) {
			over := make(chan struct{})
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), "first") {
					events(w, roleEvent, helloEvent, stopEvent, usageEvent, doneEvent)
					return
				}
				select {
				case <-over:
				case <-r.Context().Done():
					return
				}
				switch end {
				case "first token":
					events(w, helloEvent)
					<-r.Context().Done() // and goes on writing
				case "error":
					w.WriteHeader(http.StatusBadRequest)
				case "engine breaks off":
					hijack(w, reset)
				}
			})
			e.toml = "kind = \"vllm\""
			p := startProxy(t, calm+"\nretry.attempts = 1", e)
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			first := later(p, ctx, chatStream(words("first", 20_000)), "X-Session-Id", "first")
			eventually(t, "the first to be in work", func() bool { return len(e.got()) == 1 })
			second := later(p, context.Background(), chatStream(words("second", 20_000)), "X-Session-Id", "second")
			eventually(t, "the second to be held", func() bool { return p.upstreams()["a"].lanes.view().Held == 1 })
			if n := len(e.got()); n != 1 {
				t.Fatalf("the engine has %d requests", n)
			}
			if end == "client leaves" {
				leave()
			} else {
				close(over)
			}
			expectWhole(t, "the second", wait(t, "the second", second))
			leave()
			wait(t, "the first to end", first)
		})
	}
}

// C063: two hundred clients with long prompts, for which there is one place and a queue of four, leave at any moment: held, in
// prefill, in the middle of the answer, refused. Afterwards there is one place and a queue of four again, no more and no less.
func TestLongPromptsThatLeaveGiveTheirPlacesBack(t *testing.T) {
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for range rand.IntN(4) {
			select {
			case <-time.After(time.Duration(rand.IntN(15)) * time.Millisecond):
			case <-r.Context().Done():
				return
			}
			if !strings.Contains(string(body), "stays") {
				events(w, helloEvent)
			}
		}
		if strings.Contains(string(body), "stays") {
			<-r.Context().Done()
			return
		}
		events(w, stopEvent, doneEvent)
	})
	e.toml = "kind = \"vllm\""
	p := startProxy(t, calm+"\nlanes.max_held = 4\nretry.attempts = 1", e)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 2 * time.Millisecond) // they come one after the other
			c := p.dial()
			c.send(rawPost("/v1/chat/completions", chatStream(words(fmt.Sprint("leaves", i), 4000)), fmt.Sprint("X-Session-Id: s", i)))
			_ = c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(150)) * time.Millisecond))
			_, _ = io.Copy(io.Discard, c.in)
			if i%2 == 0 {
				_ = c.SetLinger(0)
			}
			_ = c.Close()
		})
	}
	all.Wait()
	p.settled()
	view := p.upstreams()["a"].lanes.view()
	if view.Held+view.InFlight+view.Back+view.Waiting+view.Decoding != 0 {
		t.Errorf("left behind: %+v", view)
	}
	t.Logf("of 200 %d were held, %d refused", view.Totals.Held, view.Totals.Full)
	before := len(e.got())
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	for i := range 5 {
		later(p, ctx, chatStream(words(fmt.Sprint("stays", i), 4000)), "Authorization", fmt.Sprint("Bearer ", i)) // no tenant gets the whole queue
	}
	eventually(t, "one in work and four held", func() bool {
		view := p.upstreams()["a"].lanes.view()
		return view.InFlight == 1 && view.Held == 4 && len(e.got()) == before+1
	})
	if got := p.post("/v1/chat/completions", chatStream(words("stays too long", 4000)), "Authorization", "Bearer sixth"); got.status != 429 {
		t.Errorf("a sixth: %d %.200s", got.status, got.body)
	}
}

// C139: what a request weighs is its tokens that are not cached, whatever the share of the ring that its engine has. An engine that
// has half of a prompt, be it in a slow tier, reports that half as cached, and only the other half is charged.
func TestOnlyTokensThatAreNotCachedAreCharged(t *testing.T) {
	for _, weight := range []int{1, 4} {
		t.Run(fmt.Sprint("weight ", weight), func(t *testing.T) {
			gate := make(chan struct{})
			prompt, cached := 2048, 0
			e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Slow") != "" {
					<-gate
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, prompt, cached)
			})
			e.toml = fmt.Sprintf("weight = %d\nkind = \"vllm\"", weight)
			p := startProxy(t, "lanes.off = true", e)
			half := words("the first half", 2048)
			p.post("/v1/chat/completions", chat(half), "X-Session-Id", "s")
			prompt, cached = 4096, 2048
			got := make(chan answer, 1)
			go func() {
				got <- p.post("/v1/chat/completions", chat(half, "yes", words("the other half", 2048)), "X-Session-Id", "s", "X-Slow", "1")
			}()
			eventually(t, "it to be in work", func() bool { return len(e.got()) == 2 })
			charged, err := strconv.ParseFloat(p.metric("warmring_charged_fresh_tokens"), 64)
			if err != nil {
				t.Fatal(err)
			}
			close(gate)
			var warm, all float64
			if _, err := fmt.Sscanf((<-got).header.Get("X-Warmring-Warm"), "%f/%f", &warm, &all); err != nil {
				t.Fatal(err)
			}
			t.Logf("%v of %v tokens are warm, %v are charged", warm, all, charged)
			if charged != all-warm || charged < 0.45*4096 || charged > 0.55*4096 {
				t.Errorf("%v tokens are charged, of %v %v are warm", charged, all, warm)
			}
		})
	}
}
