package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A client that goes away in the middle of a long prefill must free the real engine within half a second, stream or not.
// What the engine had computed by then stays in its cache: the same prompt sent again goes on from there.
func TestAClientThatLeavesInAPrefillFreesVLLM(t *testing.T) { // C059
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	for _, c := range []struct {
		name, base string
		stream     bool
	}{
		{"from vLLM itself", engines[0].URL, true},
		{"from warmring, stream", w.URL, true},
		{"from warmring, whole answer", w.URL, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var freed []time.Duration
			var body Body
			for try := range 3 {
				prompt := fmt.Sprintf("Leaving %s, %d. %s", c.name, try, words(rand.New(rand.NewPCG(1, 2)), 6000))
				body = Body{"model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": c.stream}
				freed = append(freed, leaveEarly(t, engines, c.base, Completions, body, 700*time.Millisecond))
				if err := w.Idle(t.Context(), time.Second); err != nil {
					t.Error(err)
				}
			}
			t.Logf("engine free %v after the client left", freed)
			// An engine that shares its core with others may be late by itself: the middle one of three counts, and the
			// engine's own haste without a proxy is on record above it.
			if c.base == w.URL && quantile(freed, 0.5) > 500*time.Millisecond {
				t.Errorf("the engine was busy for another %v, want at most 0.5 s", freed)
			}
			again, err := Client{Base: c.base}.Ask(t.Context(), Completions, body.With(Body{"stream": false}), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("sent again: %d of %d prompt tokens were cached, answer after %v", again.Cached, again.Prompt, again.First.Round(time.Millisecond))
			if again.Cached < vllmBlock {
				t.Errorf("sent again, only %d of %d prompt tokens were cached: it went elsewhere", again.Cached, again.Prompt)
			}
		})
	}
}

// leaveEarly sends a request, goes away some time after an engine has it in work, and measures until no engine has.
func leaveEarly(t *testing.T, engines []*Engine, base, path string, body Body, after time.Duration) time.Duration {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	type end struct {
		answer *Answer
		err    error
	}
	left := make(chan end, 1)
	go func() {
		a, err := Client{Base: base}.Ask(ctx, path, body, nil)
		left <- end{a, err}
	}()
	await(t, 10*time.Second, "the request in work", func() bool { return inWork(t, engines) == 1 })
	select {
	case e := <-left:
		t.Fatalf("ended before the client could leave: %v %+v", e.err, e.answer)
	case <-time.After(after):
	}
	leave()
	begin := time.Now()
	await(t, 10*time.Second, "idle engines", func() bool { return inWork(t, engines) == 0 })
	freed := time.Since(begin).Round(time.Millisecond)
	if e := <-left; e.err == nil {
		t.Fatalf("the client had its answer before it left: %+v", e.answer)
	}
	return freed
}

// A client that goes away while its answer is being written frees the engine as well.
func TestAClientThatLeavesInADecodeFreesVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			var freed []time.Duration
			for try := range 3 {
				body := Body{"model": "tiny", "prompt": fmt.Sprintf("Tell a long story, the %dth.", try), "max_tokens": 20000, "ignore_eos": true, "stream": stream}
				freed = append(freed, leaveEarly(t, engines, w.URL, Completions, body, 300*time.Millisecond))
			}
			t.Logf("engine free %v after the client left", freed)
			if quantile(freed, 0.5) > 500*time.Millisecond {
				t.Errorf("the engine was busy for another %v, want at most 0.5 s", freed)
			}
		})
	}
}

// inWork is how many requests the engines have running or waiting.
func inWork(t *testing.T, engines []*Engine) (n float64) {
	t.Helper()
	for _, e := range engines {
		running, waiting, err := e.Running(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += running + waiting
	}
	return n
}

// await polls until the condition holds.
func await(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain for %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
