package proxy

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// A request that has its whole prompt computed whatever is cached, for the probabilities of the prompt's tokens, would find
// nothing of slices and of runs that were taken back: it goes whole, once, and all of it is fresh.
func TestWhoeverComputesAllIsNeitherSlicedNorTakenBack(t *testing.T) {
	e, p := simulated(t, sim.VLLM, "lanes.border = 1000\nlanes.target = \"10ms\"")
	run := func(extra, id string) (given string) {
		t.Helper()
		e.ClearLog()
		body := chatBody(extra+`"stream":true,`, []string{words(id, 24_000)})
		long := later(p, context.Background(), body, "X-Session-Id", id)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Await(ctx, func(log []sim.Entry) bool { return len(log) > 0 }); err != nil {
			t.Fatal(err)
		}
		for i := 0; len(long) == 0; i++ {
			time.Sleep(50 * time.Millisecond) // a person's pause, not a proof
			if got := p.post("/v1/chat/completions", chatStream(fmt.Sprint("short ", i)), "X-Session-Id", "short"); got.status != 200 {
				t.Errorf("a short turn got %d %s", got.status, got.body)
			}
		}
		got := <-long
		if got.err != nil {
			t.Error(got.err)
		}
		return got.header.Get("X-Warmring-Preempted") + got.header.Get("X-Warmring-Slices")
	}
	for _, extra := range []string{`"prompt_logprobs":0,`, `"echo":true,"logprobs":true,"top_logprobs":1,`} {
		if given := run(extra, "all "+extra); given != "" {
			t.Errorf("with %s it was sent in slices, or taken back: %s", extra, given)
		}
	}
	if given := run(`"logprobs":true,`, "others"); given == "" {
		t.Error("another long prompt was neither sliced nor taken back")
	}
	// The second time it is long as well: nothing of what is cached is used.
	run(`"prompt_logprobs":0,`, "others")
	if v := p.upstreams()["e"].lanes.view(); v.Totals.Long.Arrived != 4 {
		t.Errorf("%d long prompts of 4 were taken for such", v.Totals.Long.Arrived)
	}
}

// Nothing is found cached for such a request although all of it is: the engine is not believed to have lost its cache.
func TestWhoeverComputesAllSaysNothingOfTheCache(t *testing.T) {
	for _, settings := range []string{"", "lanes.off = true"} {
		p := startProxy(t, settings, newFakeEngine(t, "a", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12000,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`)
		}))
		for i, extra := range []string{"", `"prompt_logprobs":1,`, `"prompt_logprobs":1,`, ""} {
			p.post("/v1/chat/completions", chatBody(extra, []string{words("long", 12_000)}), "X-Session-Id", "s")
			p.settled()
			if less := p.placer.Gauges().Totals.Less; less != uint64(i/3) {
				t.Errorf("%q, request %d: %d answers were taken for signs of a lost cache", settings, i, less)
			}
		}
	}
}
