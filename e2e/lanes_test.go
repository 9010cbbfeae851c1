package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// laneGoals are what lanes must reach before one kind of real engine, in one run with the same traffic without them.
type laneGoals struct {
	p50, p99 time.Duration // of short turns, on an idle machine: see bound
	ratio    float64       // of the short turns' P50 and P99 to those without lanes, at most
	slower   float64       // of the time that all long prompts take to that without lanes, at most
}

// bound is a time that an idle machine reaches, stretched where the engine shares its core with other work: then a short
// turn alone takes longer than alone, which is about 25 ms, by as much.
func bound(goal, alone time.Duration) time.Duration {
	const idle = 40 * time.Millisecond
	return max(goal, time.Duration(float64(goal)*float64(alone)/float64(idle)))
}

// laneVariants are the ways through the proxy that are compared, by what the configuration says.
var laneVariants = []struct{ name, settings, engine string }{
	{"lanes off", "lanes.off = true\n", ""},
	{"hold only", "", "preempt = \"no\"\n"},
	{"lanes on", "", ""},
}

// C134, C142: long cold prompts come back to back, five sessions take a short warm turn every two seconds. With lanes a short turn does
// not wait for a long prefill, and the long ones take hardly longer.
func TestShortTurnsDoNotWaitForLongPrefillsOfVLLM(t *testing.T) {
	e := twoVLLMs(t)[0]
	compareLanes(t, e, LaneTraffic{Longs: 3, Tokens: 24000}, laneGoals{200 * time.Millisecond, 500 * time.Millisecond, 1.0 / 15, 1.3})
}

func TestShortTurnsDoNotWaitForLongPrefillsOfSGLang(t *testing.T) {
	e := sglang(t)
	compareLanes(t, e, LaneTraffic{Longs: 2, Tokens: 16000}, laneGoals{400 * time.Millisecond, 1200 * time.Millisecond, 1.0 / 8, 1.4})
}

// llama.cpp takes 2,048 tokens a step and stops at a step's end: a short turn waits for that.
func TestShortTurnsDoNotWaitForLongPrefillsOfLlamaCPP(t *testing.T) {
	e := llamas(t, 1, 8)[0]
	compareLanes(t, e, LaneTraffic{Longs: 2, Tokens: 12000}, laneGoals{2 * time.Second, 4 * time.Second, 1.0 / 3, 1.4})
}

// sglang is a real SGLang of this test's own, on a core that no shared vLLM works on while it is idle.
func sglang(t *testing.T) *Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("starting real SGLang takes a minute")
	}
	if url := os.Getenv("WARMRING_E2E_SGLANG"); url != "" { // with its log in WARMRING_E2E_SGLANG_LOG
		return &Engine{Process: &Process{Log: os.Getenv("WARMRING_E2E_SGLANG_LOG")}, URL: url, Model: "tiny", Kind: "sglang"}
	}
	e, err := StartSGLang(t.Context(), SGLang{Name: "sglang", Core: 1, Logs: shared.logs, Options: []string{"--enable-metrics", "--log-requests", "--log-requests-level", "0"}})
	need(t, err)
	t.Cleanup(e.Stop)
	shared.drive(version("sglang"))
	return e
}

// compareLanes sends the same traffic through a proxy without lanes, with lanes that only hold back, and with lanes.
func compareLanes(t *testing.T, e *Engine, traffic LaneTraffic, goals laneGoals) {
	traffic.Model, traffic.AtOnce, traffic.Sessions, traffic.Every, traffic.History = e.Model, 2, 5, 2*time.Second, 1500
	runs := map[string]*LaneRun{}
	for _, v := range laneVariants {
		if only := os.Getenv("WARMRING_E2E_LANES"); only != "" && !strings.Contains(only, v.name) {
			continue
		}
		traffic.Salt = fmt.Sprintf("%s %s %d", e.Kind, v.name, time.Now().UnixNano())
		e := *e
		w := proxyWith(t, v.settings, e.EngineLines()+v.engine)
		traffic.Base = w.URL
		watch := watchWork(&e, traffic.Sessions)
		run, err := traffic.Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		runs[v.name] = run
		if err := w.Idle(t.Context(), 2*time.Second); err != nil {
			t.Error(err)
		}
		page, err := Scrape(t.Context(), w.Admin+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if v.name != "lanes off" {
			watch.verify(t, int(page.Sum("warmring_preemptions_total")))
		}
		fmt.Printf("e2e: lanes %-8s %-9s  short alone %4d ms, P50 %5d ms, P99 %5d ms, whole P50 %5d ms (%3d turns)  %d × %d tokens in %4.1f s, preempted %d times\n",
			e.Kind, v.name, Quantile(run.Alone, 0.5).Milliseconds(), run.ShortAt(0.5).Milliseconds(), run.ShortAt(0.99).Milliseconds(), Quantile(run.Whole, 0.5).Milliseconds(), len(run.Short),
			len(run.Long), run.Tokens, run.Took.Seconds(), run.Preempted)
		logLanes(t, w)
	}
	off, on := runs["lanes off"], runs["lanes on"]
	if off == nil || on == nil {
		return
	}
	alone := Quantile(on.Alone, 0.5)
	for _, q := range []struct {
		name string
		at   float64
		goal time.Duration
	}{{"P50", 0.5, goals.p50}, {"P99", 0.99, goals.p99}} {
		got, without := on.ShortAt(q.at), off.ShortAt(q.at)
		if limit := bound(q.goal, alone); got > limit {
			t.Errorf("short turns' %s is %v, want at most %v (%v on an idle machine)", q.name, got, limit, q.goal)
		}
		if float64(got) > goals.ratio*float64(without) {
			t.Errorf("short turns' %s is %v, %v without lanes: want at most %.2f of it", q.name, got, without, goals.ratio)
		}
	}
	if on.Took.Seconds() > goals.slower*off.Took.Seconds() {
		t.Errorf("the long prompts took %v, %v without lanes: want at most %.1f times", on.Took, off.Took, goals.slower)
	}
	if on.Preempted == 0 {
		t.Error("no long prompt was ever taken back")
	}
}

// logLanes notes what the proxy knows of its engine's lanes.
func logLanes(t *testing.T, w *Warmring) {
	page, err := get(t.Context(), w.Admin+"/api/engines")
	if err == nil {
		if at := regexp.MustCompile(`"lanes":\{.*?\}\}`).Find(page); at != nil {
			t.Logf("%s", at)
		}
	}
}

// proxyWith starts a proxy before one engine that is described by the lines of its table.
func proxyWith(t *testing.T, settings, lines string) *Warmring {
	t.Helper()
	binary, err := shared.build()
	if err != nil {
		t.Fatal(err)
	}
	w, err := StartWarmring(t.Context(), Proxy{Binary: binary, Settings: settings, Logs: shared.logs, Engines: map[string]string{"a": lines}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Stop()
		if t.Failed() {
			t.Logf("%s printed last:\n%s", w.Name, w.Tail(60))
		}
	})
	return w
}

// workWatch looks what an engine has in work while lanes are on: one long prompt and the short turns, never a copy.
type workWatch struct {
	e        *Engine
	most     float64 // requests in work at once, seen in two looks in a row
	limit    float64
	stop     context.CancelFunc
	watching sync.WaitGroup
	before   Metrics
}

func watchWork(e *Engine, sessions int) *workWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &workWatch{e: e, limit: float64(sessions + 1), stop: stop}
	w.before, _ = Scrape(ctx, e.URL+"/metrics")
	w.watching.Go(func() {
		last := 0.0
		for ctx.Err() == nil {
			if m, err := Scrape(ctx, e.URL+"/metrics"); err == nil {
				now := 0.0
				for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "llamacpp:requests_processing", "llamacpp:requests_deferred"} {
					now += m.Sum(name)
				}
				w.most = max(w.most, min(now, last)) // a number may be old for a moment
				last = now
			}
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	})
	return w
}

// verify that what the engine was given is what was answered, and what was taken back.
func (w *workWatch) verify(t *testing.T, preempted int) {
	t.Helper()
	w.stop()
	w.watching.Wait()
	if w.most > w.limit {
		t.Errorf("%v requests were in work at once: want at most %v", w.most, w.limit)
	}
	switch w.e.Kind {
	case "vllm":
		after, err := Scrape(t.Context(), w.e.URL+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		aborted := after.Sum("vllm:request_success_total", `finished_reason="abort"`) - w.before.Sum("vllm:request_success_total", `finished_reason="abort"`)
		if int(aborted) != preempted {
			t.Logf("the engine aborted %v requests, the proxy took %d back", aborted, preempted)
		}
	case "sglang":
	}
}
