package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

const sliceSettings = "lanes.border = 1000\nlanes.share = 0.1\nlanes.target = \"20ms\""

// C134: a long prompt goes in slices while short turns are there. Its client has one answer, the engine's own, with the
// engine's own usage; the engine has its body whole and once, and what the slices computed is found in its cache.
func TestAPromptInSlicesIsOnePromptToItsClient(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang, sim.Llama} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, " stream ", stream), func(t *testing.T) {
				t.Parallel()
				e, p := simulated(t, mode, "lanes.border = 1000\nlanes.target = \"20ms\"")
				for range 2 { // the second one finds the first one cached, which makes slices possible on an unknown kind of engine
					if _, _, _, err := ask(p, chatStream("hi"), "X-Session-Id", "short"); err != nil {
						t.Fatal(err)
					}
				}
				body := chat(words("long", 16_000))
				if stream {
					body = chatStream(words("long", 16_000))
				}
				e.ClearLog()
				got := p.post("/v1/chat/completions", body, "X-Session-Id", "long", "X-Request-Id", "long")
				if got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				log := e.Log()
				onlyOneCopyEach(t, log)
				wholes, slices := 0, 0
				for _, entry := range log {
					switch {
					case entry.Path != "/v1/chat/completions":
					case len(ridMember.ReplaceAll(entry.Body, nil)) == len(body):
						wholes++
						if string(ridMember.ReplaceAll(entry.Body, nil)) != body {
							t.Error("the engine was sent other bytes than the client's")
						}
						if entry.CachedTokens < entry.PromptTokens/2 {
							t.Errorf("of %d tokens %d were cached after all slices", entry.PromptTokens, entry.CachedTokens)
						}
						if entry.OutputTokens < 2 {
							t.Errorf("%d tokens of output", entry.OutputTokens)
						}
					default:
						slices++
						if entry.OutputTokens != 1 || entry.Stream {
							t.Errorf("a slice had %d tokens of output, streamed %v", entry.OutputTokens, entry.Stream)
						}
					}
				}
				if wholes != 1 || slices < 2 || got.header.Get("X-Warmring-Slices") != fmt.Sprint(slices) {
					t.Errorf("sent whole %d times and in %d slices; the client is told %q", wholes, slices, got.header.Get("X-Warmring-Slices"))
				}
				if n := p.metric(`warmring_slices_total{engine="e"}`); n != fmt.Sprint(slices) {
					t.Errorf("%s of %d slices are counted", n, slices)
				}
				eventually(t, "the log line", func() bool { return strings.Contains(p.log.String(), fmt.Sprint("slices=", slices)) })
				x, ok := p.recent.explain("long")
				if !ok || x.Slices != slices || x.Lane != "long" {
					t.Errorf("explained as %+v", x)
				}
				again := p.post("/v1/chat/completions", body, "X-Session-Id", "long")
				if a, b := withoutIDs(got.body), withoutIDs(again.body); len(got.body) < 50 || len(a) != len(b) {
					t.Errorf("in slices it is answered with\n%s\nand whole with\n%s", a, b)
				}
				p.settled()
			})
		}
	}
}

// withoutIDs cuts an answer down to what the model said.
func withoutIDs(body string) string {
	var b strings.Builder
	for _, part := range strings.Split(body, `"`) {
		if strings.Contains(part, "tok") && !strings.Contains(part, "token") {
			b.WriteString(part)
		}
	}
	return b.String()
}

// A short turn that comes during a slice is served right after it, before the next one.
func TestAShortTurnGoesBetweenTwoSlices(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	body := chatStream(words("long", 20_000))
	long, short := between(t, p, e, context.Background(), body)
	e.short <- struct{}{}
	expectWhole(t, "the short turn", wait(t, "the short turn", short))
	got := wait(t, "the long answer", long)
	expectWhole(t, "the long prompt", got)
	e.expectOnce(t, body, 1)
	_, _, order := e.saw()
	if s := strings.Join(order, " "); !strings.HasPrefix(s, "short slice short ") {
		t.Errorf("served in this order: %s", s)
	}
	if got.header.Get("X-Warmring-Held") == "" {
		t.Error("it was held between two slices and does not say so")
	}
}

// The engine refuses slices: the prompt goes whole, and is answered as if there were none.
func TestAnEngineThatRefusesSlicesGetsTheWhole(t *testing.T) {
	for _, status := range []int{400, 404, 422, 301} {
		e := newSliceEngine(t, "a")
		e.refuses = status
		p := startProxy(t, sliceSettings, e.fakeEngine)
		contended(t, p)
		body := chatStream(words("long", 20_000))
		got := wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long"))
		expectWhole(t, fmt.Sprint("after ", status, " the client"), got)
		e.expectOnce(t, body, 1)
		slices, _, _ := e.saw()
		if len(slices) != 1 || got.header.Get("X-Warmring-Slices") != "" || p.metric(`warmring_slice_failures_total{engine="a"}`) != "1" {
			t.Errorf("%d: %d slices were sent, %q told, %s failures counted", status, len(slices), got.header.Get("X-Warmring-Slices"), p.metric(`warmring_slice_failures_total{engine="a"}`))
		}
		p.settled()
	}
}

// The engine keeps no prefixes: after a few slices that did not find the ones before them the prompt goes whole, and after a
// few such prompts there are none any more.
func TestAnEngineThatKeepsNothingIsNotSliced(t *testing.T) {
	e := newSliceEngine(t, "a")
	e.forgets, e.after = true, 5*time.Millisecond
	p := startProxy(t, sliceSettings, e.fakeEngine)
	contended(t, p)
	before := 0
	for i := range 4 {
		body := chatStream(words(fmt.Sprint("long", i), 60_000))
		expectWhole(t, "the client", wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", fmt.Sprint("long", i))))
		slices, wholes, _ := e.saw()
		if len(wholes) != i+1 || wholes[i] != body {
			t.Errorf("prompt %d was sent %d times", i, len(wholes)-i)
		}
		if sent := len(slices) - before; sent > 6 || i == 3 && sent > 0 {
			t.Errorf("%d slices of prompt %d were sent", sent, i)
		}
		before = len(slices)
	}
	if v := p.upstreams()["a"].lanes.view(); v.Way.String() == "slices" || v.Totals.SlicesLost == 0 {
		t.Errorf("the lanes still believe in slices: %s, %s", v.Way, v.Why)
	}
}

// An operator who wants neither has neither, and an engine that wants neither.
func TestSlicesCanBeSwitchedOff(t *testing.T) {
	for _, off := range []string{"lanes.slices = false", `preempt = "no"`} {
		e := newSliceEngine(t, "a")
		settings := sliceSettings
		if strings.HasPrefix(off, "lanes") {
			settings += "\n" + off
		} else {
			e.toml += "\n" + off
		}
		p := startProxy(t, settings, e.fakeEngine)
		contended(t, p)
		body := chatStream(words("long", 20_000))
		expectWhole(t, "the client", wait(t, "the answer", later(p, context.Background(), body, "X-Session-Id", "long")))
		e.expectOnce(t, body, 0)
		if slices, _, _ := e.saw(); len(slices) > 0 {
			t.Errorf("%s, and %d slices were sent", off, len(slices))
		}
	}
}

// Slices are cut from the body as it goes to the engine, with the same headers: the alias' model, without the billing line,
// with the engine's key.
func TestSlicesAreOfTheBodyAsItIsForwarded(t *testing.T) {
	e := newSliceEngine(t, "a")
	e.models = `{"object":"list","data":[{"id":"real/m","object":"model"}]}`
	e.toml += "\napi_key = \"k\""
	p := startProxy(t, sliceSettings+"\nidentity.strip_billing_line = true\nmodels.alias = {m = \"real/m\"}", e.fakeEngine)
	contended(t, p)
	body := fmt.Sprintf(`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;\nYou code."}],"messages":[{"role":"user","content":%q}]}`, words("long", 20_000))
	got := p.post("/v1/messages", body, "X-Session-Id", "long", "Anthropic-Version", "2023-06-01")
	if got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	seen := 0
	for _, c := range e.got() {
		if !strings.HasPrefix(c.uri, "/v1/messages") || len(c.body) == 0 {
			continue
		}
		seen++
		if strings.Contains(c.body, "billing") || !strings.Contains(c.body, `"model":"real/m"`) || !strings.Contains(c.body, "You code.") {
			t.Errorf("the engine was sent %.200s", c.body)
		}
		if c.header.Get("Authorization") != "Bearer k" || c.header.Get("Anthropic-Version") == "" || c.method != http.MethodPost {
			t.Errorf("with %v", c.header)
		}
	}
	if seen < 2 {
		t.Errorf("%d requests were sent", seen)
	}
}

// What waits in the lanes, and how prompts give way, is shown while it happens.
func TestLanesAreShown(t *testing.T) {
	e := newSliceEngine(t, "a")
	p := startProxy(t, sliceSettings, e.fakeEngine)
	long, short := between(t, p, e, context.Background(), chatStream(words("long", 20_000)))
	resp, err := http.Get(p.adminURL + "/api/lanes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var views []struct {
		Engine string
		Lanes  struct {
			Way string
			Why string `json:"way_reason"`
		}
		Requests []struct {
			Lane, State, Session string
			Fresh                int `json:"fresh_tokens"`
			Slices               int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&views); err != nil {
		t.Fatal(err)
	}
	if len(views) != 1 || views[0].Engine != "a" || views[0].Lanes.Way != "slices" || views[0].Lanes.Why == "" || len(views[0].Requests) != 2 {
		t.Fatalf("shown: %+v", views)
	}
	a, b := views[0].Requests[0], views[0].Requests[1]
	if a.Lane != "interactive" || a.State != "prefilling" || b.Lane != "long" || b.State != "held" || b.Slices != 1 || b.Fresh < 10_000 || b.Session == "" {
		t.Errorf("shown: %+v", views[0].Requests)
	}
	if p.metric(`warmring_lane_way{engine="a",way="slices"}`) != "1" {
		t.Error("the way is not in the metrics")
	}
	close(e.short)
	expectWhole(t, "the short turn", wait(t, "the short turn", short))
	expectWhole(t, "the client", wait(t, "the long answer", long))
	if lists := p.lanesViews(); len(lists[0].Requests) != 0 {
		t.Errorf("still shown: %+v", lists)
	}
}

// A slice is no copy of the client's request to whoever goes by its headers: it has no key of a request that may happen once, an
// id of its own beside the request's, and wants JSON. The request itself has the client's headers as ever.
func TestSlicesHaveHeadersOfTheirOwn(t *testing.T) {
	for _, id := range []string{"mine", ""} {
		e := newSliceEngine(t, "a")
		p := startProxy(t, sliceSettings, e.fakeEngine)
		contended(t, p)
		header := []string{"X-Session-Id", "long", "Idempotency-Key", "once", "Accept", "text/event-stream", "X-Stainless-Lang", "js"}
		if id != "" {
			header = append(header, "X-Request-Id", id)
		}
		got := p.post("/v1/chat/completions", chatStream(words("long", 20_000)), header...)
		id = got.header.Get("X-Request-Id")
		seen := 0
		for _, c := range e.got()[1:] {
			h := c.header
			if h.Get("X-Stainless-Lang") != "js" {
				t.Errorf("sent with %v", h)
			}
			if !strings.Contains(c.body, `"max_tokens":1`) {
				if h.Get("Idempotency-Key") != "once" || h.Get("Accept") != "text/event-stream" || h.Get("X-Request-Id") != id {
					t.Errorf("the request itself was sent with %v", h)
				}
				continue
			}
			seen++
			if h.Get("Idempotency-Key") != "" || fmt.Sprint(h["Accept"]) != "[application/json]" || fmt.Sprint(h["X-Request-Id"]) != fmt.Sprintf("[%s-s%d]", id, seen) {
				t.Errorf("slice %d was sent with %v", seen, h)
			}
		}
		if seen < 2 {
			t.Errorf("%d slices", seen)
		}
	}
}
