package demo

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmring/warmring/e2e/workload"
)

func TestMain(m *testing.M) {
	// fasthttp keeps the date for all servers of a process and never ends that; a server that has ended leaves a goroutine
	// that notices it at its next look, up to 10 s later.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")) // a probe under way outlives its member by a moment
}

// small is a demo of about two seconds.
func small() settings {
	return settings{
		engines: 3, plain: true, toCompute: 1200 * time.Millisecond, longTokens: 12_000, shortTurns: 5,
		liveShare: 0.6, // few sessions per engine cannot be spread as evenly as many
		spec: workload.Spec{
			Seed: 5, Sessions: 10, Model: modelName, Turns: workload.Range{Min: 8, Max: 11},
			Head: workload.Range{Min: 300, Max: 400}, First: workload.Range{Min: 900, Max: 2000}, More: workload.Range{Min: 60, Max: 400},
			Huge: workload.Range{Min: 2000, Max: 3000}, Answer: workload.Range{Min: 2, Max: 6},
			Begin: workload.Span{Max: 200 * time.Millisecond}, Tool: workload.Span{Max: 30 * time.Millisecond}, Human: workload.Span{Max: 100 * time.Millisecond},
		},
	}
}

// output is written by the demo and read by a test meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen func(text string) // told of all that was written so far
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.seen != nil {
		o.seen(o.text.String())
	}
	return len(p), nil
}

func TestWarmringComesNearTheLimitAndRoundRobinDoesNot(t *testing.T) {
	var out output
	c, err := run(t.Context(), small(), &out)
	t.Log("\n" + out.text.String())
	if err != nil {
		t.Fatal(err)
	}
	ideal, warm, robin := c.totals.Ideal(), c.warmring.cached(), c.roundRobin.cached()
	if ideal-warm > 0.03 {
		t.Errorf("warmring hit %.1f %% where %.1f %% could be had", 100*warm, 100*ideal)
	}
	if warm-robin < 0.10 {
		t.Errorf("round robin hit %.1f %%, warmring %.1f %%: nothing to see", 100*robin, 100*warm)
	}
	if c.warmring.loyal() < 0.97 {
		t.Errorf("%.1f %% of turns stayed on their session's engine", 100*c.warmring.loyal())
	}
	for _, want := range []string{
		`round robin\s+warmring\s+limit`, `cached share of prompt tokens\s+[\d.]+ %\s+[\d.]+ %\s+[\d.]+ %`, `prefilled \(fresh\) tokens`,
		`time to first token, P50`, `P90`, `P99`, `turns on their session's engine`, `busiest engine`,
		`lanes off\s+lanes on`, `short turns' first token, P99\s+[\d.]+ m?s\s+[\d.]+ m?s`, `the long prompts took`, `with them; the long ones took [\d.]+×`,
		`Round robin computed [\d.]+× the prefill work`, `all gauges of the proxy back to 0`, `warmring\.toml`,
	} {
		if !regexp.MustCompile(want).MatchString(out.text.String()) {
			t.Errorf("the output has no %s", want)
		}
	}
	for line := range strings.Lines(out.text.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > tableWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// Several proxies, any of them for each request, one of them cut off and started again: sessions stay as warm as with one.
func TestSeveralProxiesHitAsOneDoes(t *testing.T) {
	set := small()
	set.proxies = 3
	var out output
	c, err := run(t.Context(), set, &out)
	t.Log("\n" + out.text.String())
	if err != nil {
		t.Fatal(err)
	}
	// The figures are for people: where the machine is slow, a turn may overtake the news of the one before.
	one, many, robin := c.warmring.cached(), c.hops.score.cached(), c.roundRobin.cached()
	if many < (one+robin)/2 {
		t.Errorf("one proxy hit %.1f %%, three %.1f %%, round robin %.1f %%", 100*one, 100*many, 100*robin)
	}
	if c.hops.away == 0 {
		t.Error("no proxy was cut off")
	}
	if !regexp.MustCompile(`one proxy\s+3 proxies\ncached share of prompt tokens\s+[\d.]+ %\s+[\d.]+ %`).MatchString(out.text.String()) {
		t.Error("the table does not tell")
	}
	if !regexp.MustCompile(`3 proxies computed [\d.]+× the prefill work of one`).MatchString(out.text.String()) {
		t.Error("the closing words do not tell")
	}
	for line := range strings.Lines(out.text.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > tableWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

func TestKeepLeavesProxyAndEnginesRunningUntilTheEnd(t *testing.T) {
	set := small()
	set.keep, set.spec.Sessions = true, 3
	ctx, end := context.WithCancel(t.Context())
	defer end()
	invited := make(chan string, 1)
	out := &output{seen: func(text string) {
		if strings.Contains(text, "curl") && len(invited) == 0 {
			invited <- text
		}
	}}
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, set, out)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it did not keep running: %v", err)
	case text := <-invited:
		urls := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\n|http://127\.0\.0\.1:\d+/v1/chat/completions`).FindAllString(text, -1)
		if len(urls) != 2 {
			t.Fatalf("page and endpoint are not in\n%s", text)
		}
		if resp := do(t, http.MethodGet, strings.TrimSpace(urls[0]), ""); resp.StatusCode != 200 {
			t.Errorf("the page answers %s", resp.Status)
		}
		body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(text)[1]
		resp := do(t, http.MethodPost, urls[1], body)
		if resp.StatusCode != 200 || resp.Header.Get("x-warmring-engine") == "" {
			t.Errorf("the request to try answers %s without an engine's name", resp.Status)
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func do(t *testing.T, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestAnInterruptionEndsEverything(t *testing.T) {
	set := small()
	w := set.spec.Write()
	for _, through := range []string{"round robin", "warmring"} {
		t.Run(through, func(t *testing.T) {
			fleet, err := startFleet(set.engines, measure(w, set))
			if err != nil {
				t.Fatal(err)
			}
			via, end := fleet.roundRobin(), fleet.close
			if through == "warmring" {
				stage, err := startProxy(t.Context(), fleet)
				if err != nil {
					fleet.close()
					t.Fatal(err)
				}
				via, end = stage.route(), func() {
					if left := stage.idle(context.Background()); left != nil {
						t.Error("left behind: ", left)
					}
					if err := stage.close(); err != nil {
						t.Error(err)
					}
				}
			}
			defer end()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var sent atomic.Int32
			next := via.next
			via.next = func() (string, int) {
				if sent.Add(1) == 10 { // some are being answered, this one is about to be sent
					interrupt()
				}
				return next()
			}
			if err := play(ctx, w, via, newScore(through, fleet), newView(&output{}, true, set.engines)); err != context.Canceled {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestRunTellsHowItWasCalledWrongly(t *testing.T) {
	for _, call := range []struct {
		args   string
		status int
		says   string
	}{
		{"-h", 0, "usage: warmring demo"},
		{"-what", 2, "not defined: -what"},
		{"now", 2, `unexpected argument "now"`},
		{"-engines 1", 2, "2 to 16"},
		{"-sessions 1000", 2, "2 to 500"},
		{"-proxies 10", 2, "1 to 9"},
		{"-seed x", 2, "invalid value"},
	} {
		var out, errs bytes.Buffer
		if status := Run(t.Context(), strings.Fields(call.args), &out, &errs); status != call.status {
			t.Errorf("demo %s ends with %d", call.args, status)
		}
		if !strings.Contains(errs.String(), call.says) || !strings.Contains(errs.String(), "-keep") || out.Len() > 0 {
			t.Errorf("demo %s says %q", call.args, errs.String())
		}
	}
	var out, errs bytes.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if status := Run(ctx, nil, &out, &errs); status != 1 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("interrupted: status %d, %q", status, errs.String())
	}
}
