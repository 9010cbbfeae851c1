package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// laneGoals are what lanes must reach before one kind of real engine, in one run with the same traffic without them. The
// ratios hold on any machine; times only on one that does nothing else, where WARMRING_FIGURES=1 asks for them too: they stretch
// with what one long prompt takes, idle on an idle machine.
type laneGoals struct {
	idle time.Duration // of a long prompt without lanes, on a core of its own
	p50  time.Duration // of short turns' times to first token
	p99  time.Duration
	// ratio is the most of the short turns' P99 to that without lanes.
	ratio float64
	// slower is the most of the time that all long prompts take to that without lanes, beyond what the short turns take that were
	// not served meanwhile without lanes: their own work is not the long ones' loss.
	slower float64
	// The same of aborts alone, where the engine can stop: of the P99, and of all the time, with the more short turns in it.
	abortsRatio, abortsSlower float64
}

// C134, C142: long cold prompts come back to back, five sessions take a short warm turn every two seconds. With lanes a short
// turn waits for a slice of a long prompt at most.
func TestShortTurnsDoNotWaitForLongPrefillsOfVLLM(t *testing.T) {
	e := twoVLLMs(t)[0]
	compareLanes(t, e, LaneTraffic{Longs: 3, Tokens: 24000}, laneGoals{
		idle: 9 * time.Second, p50: 200 * time.Millisecond, p99: 500 * time.Millisecond, ratio: 1.0 / 15, slower: 1.3, abortsRatio: 1.0 / 12, abortsSlower: 1.35,
	})
}

// The tokens that a short turn asked for come between two slices of the long prompt: SGLang computes nothing beside a prefill.
func TestShortTurnsDoNotWaitForLongPrefillsOfSGLang(t *testing.T) {
	e := sglang(t)
	compareLanes(t, e, LaneTraffic{Longs: 2, Tokens: 16000}, laneGoals{
		idle: 9500 * time.Millisecond, p50: 500 * time.Millisecond, p99: time.Second, ratio: 1.0 / 8, slower: 1.4, abortsRatio: 0.45, abortsSlower: 2.2,
	})
}

// llama.cpp is slow to stop and does not say when it has, so nothing is ever taken back from it. It needs no more than slices.
func TestShortTurnsDoNotWaitForLongPrefillsOfLlamaCPP(t *testing.T) {
	e := llamas(t, 1, 8)[0]
	compareLanes(t, e, LaneTraffic{Longs: 2, Tokens: 12000}, laneGoals{
		idle: 9 * time.Second, p50: 400 * time.Millisecond, p99: 1500 * time.Millisecond, ratio: 1.0 / 8, slower: 1.3,
	})
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

// compareLanes sends the same traffic through a proxy without lanes, with lanes that abort and send again what is in the way, and
// with lanes as they are by default. The bench has more ways.
func compareLanes(t *testing.T, e *Engine, traffic LaneTraffic, goals laneGoals) {
	traffic.Model, traffic.AtOnce, traffic.Sessions, traffic.Every, traffic.History = e.Model, 2, 5, 2*time.Second, 1500
	runs := map[string]*LaneRun{}
	for _, v := range LaneVariants() {
		only := os.Getenv("WARMRING_E2E_LANES") // names of variants, for trying things out
		if only == "" && (v.Name == "hold only" || v.Name == "aborts" && e.Kind == "custom") {
			continue
		}
		if only != "" && !strings.Contains(only, v.Name) {
			continue
		}
		traffic.Salt = fmt.Sprintf("%s %s %d", e.Kind, v.Name, time.Now().UnixNano())
		e := *e
		w := proxyWith(t, v.Settings, e.EngineLines()+v.Engine)
		traffic.Base = w.URL
		watch := watchWork(&e, traffic.Sessions+traffic.AtOnce)
		run, err := traffic.Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		runs[v.Name] = run
		if err := w.Idle(t.Context(), 2*time.Second); err != nil {
			t.Error(err)
		}
		page, err := Scrape(t.Context(), w.Admin+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if v.Name != "lanes off" {
			watch.verify(t, int(page.Sum("warmring_preemptions_total")))
		}
		fmt.Printf("e2e: lanes %-8s %-9s  short alone %4d ms, P50 %5d ms, P99 %5d ms, whole P50 %5d ms (%3d turns)  %d × %d tokens in %4.1f s, preempted %d times, in %d slices\n",
			e.Kind, v.Name, Quantile(run.Alone, 0.5).Milliseconds(), run.ShortAt(0.5).Milliseconds(), run.ShortAt(0.99).Milliseconds(), Quantile(run.Whole, 0.5).Milliseconds(), len(run.Short),
			len(run.Long), run.Tokens, run.Took.Seconds(), run.Preempted, run.Slices)
		logLanes(t, w)
		if v.Name == "aborts" && run.Preempted == 0 {
			t.Error("no long prompt was ever taken back")
		}
	}
	off, on := runs["lanes off"], runs["lanes on"]
	if off == nil || on == nil {
		return
	}
	stretch := max(1, off.Took.Seconds()/float64(len(off.Long))/goals.idle.Seconds())
	for _, q := range []struct {
		at   float64
		goal time.Duration
	}{{0.5, goals.p50}, {0.99, goals.p99}} {
		if got, limit := on.ShortAt(q.at), time.Duration(stretch*float64(q.goal)); got > limit && figures {
			t.Errorf("short turns' P%.0f is %v, want at most %v: %v on a machine %.1f times as slow as an idle one", 100*q.at, got, limit, q.goal, stretch)
		}
	}
	if got, without := on.ShortAt(0.99), off.ShortAt(0.99); float64(got) > goals.ratio*float64(without) {
		t.Errorf("short turns' P99 is %v, %v without lanes: want at most %.2f of it", got, without, goals.ratio)
	}
	served := time.Duration(max(len(on.Short)-len(off.Short), 0)) * Quantile(on.AloneAll, 0.5)
	fmt.Printf("e2e: lanes %-8s the long prompts took %.2f times as long with lanes, %.2f without the %.1f s of %d more short turns\n",
		e.Kind, on.Took.Seconds()/off.Took.Seconds(), (on.Took-served).Seconds()/off.Took.Seconds(), served.Seconds(), len(on.Short)-len(off.Short))
	if (on.Took - served).Seconds() > goals.slower*off.Took.Seconds() {
		t.Errorf("the long prompts took %v, of which %v for more short turns, and %v without lanes: want at most %.1f times", on.Took, served, off.Took, goals.slower)
	}
	if aborts := runs["aborts"]; aborts != nil {
		if got, without := aborts.ShortAt(0.99), off.ShortAt(0.99); float64(got) > goals.abortsRatio*float64(without) {
			t.Errorf("with aborts alone short turns' P99 is %v, %v without lanes: want at most %.2f of it", got, without, goals.abortsRatio)
		}
		if aborts.Took.Seconds() > goals.abortsSlower*off.Took.Seconds() {
			t.Errorf("with aborts alone the long prompts took %v, %v without lanes: want at most %.2f times", aborts.Took, off.Took, goals.abortsSlower)
		}
	}
	if e.Kind == "custom" {
		if on.Preempted > 0 {
			t.Errorf("long prompts were taken back %d times from an engine that cannot stop at once", on.Preempted)
		}
	}
	if on.Preempted+on.Slices == 0 {
		t.Error("no long prompt ever gave way once it was sent")
	}
}

// figures asks for what only an idle machine can do.
var figures = os.Getenv("WARMRING_FIGURES") != ""

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

// workWatch looks what an engine has in work while lanes are on: no more than clients asked for, never a copy.
type workWatch struct {
	e        *Engine
	most     float64 // requests in work at once, seen in two looks in a row
	limit    float64
	stop     context.CancelFunc
	watching sync.WaitGroup
	before   Metrics
	logged   int64 // size of the engine's log before
}

func watchWork(e *Engine, clients int) *workWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &workWatch{e: e, limit: float64(clients), stop: stop}
	w.before, _ = Scrape(ctx, e.URL+"/metrics")
	if e.Kind == "sglang" {
		if info, err := os.Stat(e.Log); err == nil {
			w.logged = info.Size()
		}
	}
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
	after, err := Scrape(t.Context(), w.e.URL+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	switch w.e.Kind {
	case "vllm":
		if n := after.Sum("vllm:num_requests_running") + after.Sum("vllm:num_requests_waiting"); n > 0 {
			t.Errorf("%v requests are still in work", n)
		}
	case "sglang":
		text, err := os.ReadFile(w.e.Log)
		if err != nil {
			t.Fatal(err)
		}
		runs := sglangPrefills(text[min(w.logged, int64(len(text))):], laneLongTokens)
		aborted := 0
		for i, r := range runs {
			if r.aborted {
				aborted++
			}
			if i > 0 && r.begin < runs[i-1].end {
				t.Errorf("%s was sent %.3f s before %s had ended", r.id, runs[i-1].end-r.begin, runs[i-1].id)
			}
		}
		if aborted != preempted {
			t.Errorf("the engine stopped %d requests, the proxy took %d back", aborted, preempted)
		}
		t.Logf("the engine's log has %d long prefills, of which %d were stopped", len(runs), aborted)
	}
}

// laneLongTokens tells long prompts from short turns in an engine's log.
const laneLongTokens = 8000

// prefill is a long prompt's time in an engine up to its first token or its abort, in seconds.
type prefill struct {
	id         string
	begin, end float64
	aborted    bool
}

var sglangEnd = regexp.MustCompile(`'id': '(wr-[0-9a-f]+)', 'finish_reason': \{'type': '(\w+)'.*`)

// sglangPrefills reads an SGLang's log of requests, in the order of their arrival. Only long prompts are ever aborted here.
func sglangPrefills(log []byte, least int) (list []prefill) {
	for _, line := range sglangEnd.FindAllSubmatch(log, -1) {
		number := func(name string) float64 {
			_, rest, _ := bytes.Cut(line[0], []byte("'"+name+"': "))
			text, _, _ := bytes.Cut(rest, []byte(","))
			n, _ := strconv.ParseFloat(strings.Trim(string(text), "}"), 64)
			return n
		}
		p := prefill{id: string(line[1]), aborted: string(line[2]) == "abort"}
		if p.aborted {
			p.end = number("response_sent_to_client_ts")
			p.begin = p.end - number("e2e_latency")
		} else {
			p.begin = number("request_received_ts")
			p.end = p.begin + number("first_token_latency")
		}
		if p.aborted || number("prompt_tokens") >= float64(least) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b prefill) int { return cmp.Compare(a.begin, b.begin) })
	return list
}
