package proxy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/proxy/lane"
)

// A prompt that nobody has sent before goes in slices: what it finds cached at last is its own work, and no cache was hit. When
// it comes again it is.
func TestAPromptsOwnSlicesAreNoCacheHits(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			e, p := simulated(t, mode, "lanes.border = 1000\nlanes.target = \"20ms\"")
			if _, _, _, err := ask(p, chatStream("hi"), "X-Session-Id", "short"); err != nil {
				t.Fatal(err)
			}
			number := func(name string) int {
				n, _ := strconv.Atoi(p.metric(name))
				return n
			}
			before := number("warmring_cached_tokens_total")
			body := chatStream(words("long", 16_000))
			got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long", "X-Request-Id", "long"))
			if got.err != nil || !strings.Contains(got.text, "[DONE]") {
				t.Errorf("the client got %v %.300q", got.err, got.text)
			}
			p.settled()
			var last sim.Entry
			for _, entry := range e.Log() {
				if entry.Path == "/v1/chat/completions" {
					last = entry
				}
			}
			x, _ := p.recent.explain("long")
			hit, own := number("warmring_cached_tokens_total")-before, number("warmring_own_cached_tokens_total")
			if hit > 64 || own < 8000 || hit+own != last.CachedTokens || x.Own != own || x.RealCached != hit || x.Slices == 0 {
				t.Errorf("%d tokens are counted as hits and %d as its own of %d cached; explained as %+v", hit, own, last.CachedTokens, x)
			}
			eventually(t, "the log line", func() bool { return strings.Contains(p.log.String(), fmt.Sprint("own=", own)) })
			if n := number(`warmring_engine_cached_tokens_total{engine="e"}`); n > 64 {
				t.Errorf("%d tokens are counted as hits at the engine", n)
			}

			wait(t, "the second answer", later(p, context.Background(), body, "X-Session-Id", "long"))
			p.settled()
			if again := number("warmring_cached_tokens_total") - before - hit; again < 8000 || number("warmring_own_cached_tokens_total") != own {
				t.Errorf("the second time %d tokens are hits", again)
			}
		})
	}
}

func TestOwnWork(t *testing.T) {
	known := func(prompt, cached int) lane.Slice { return lane.Slice{Prompt: prompt, Cached: cached} }
	for name, c := range map[string]struct {
		warm    int
		aborted int // tokens, before the slices
		slices  []lane.Slice
		cached  int
		want    int
	}{
		"nothing was done before":         {warm: 500, cached: 900, want: 0},
		"all of it by slices":             {slices: []lane.Slice{known(1000, 0), known(2000, 992)}, cached: 1984, want: 1984},
		"behind a warm head":              {warm: 3000, slices: []lane.Slice{known(4000, 3200), known(5000, 3984)}, cached: 4992, want: 1792},
		"warm far beyond what was known":  {slices: []lane.Slice{known(1000, 992), known(2000, 1984), known(3000, 1984)}, cached: 2992, want: 1040},
		"forgotten again":                 {slices: []lane.Slice{known(1000, 0), known(2000, 0)}, cached: 0, want: 0},
		"forgotten but for the warm head": {warm: 3000, slices: []lane.Slice{known(4000, 3008)}, cached: 3008, want: 0},
		"taken back, nothing else":        {warm: 1000, aborted: 2000, cached: 2900, want: 1900},
		"taken back, more was warm":       {warm: 1000, aborted: 2000, cached: 9000, want: 2000},
		"taken back, then sliced":         {warm: 1000, aborted: 2000, slices: []lane.Slice{known(4000, 2800)}, cached: 3984, want: 2984},
		"the engine does not say":         {slices: []lane.Slice{known(-1, -1)}, cached: -1, want: 0},
		"it says so at last":              {slices: []lane.Slice{known(-1, -1)}, cached: 900, want: 900},
	} {
		p := lanePart{had: c.warm, sure: c.warm, base: c.warm, done: c.aborted}
		if c.aborted > 0 {
			p.preempted = 1
		}
		for _, s := range c.slices {
			p.tokens = max(s.Prompt, 1000)
			p.computed(s)
			p.slices++
			p.had, p.sure, p.done = p.tokens, p.tokens, 0
		}
		if got := p.ownOf(c.cached); got != c.want {
			t.Errorf("%s: %d of %d cached tokens are its own, want %d", name, got, c.cached, c.want)
		}
	}
}
