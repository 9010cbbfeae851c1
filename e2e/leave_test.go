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
func TestAClientThatLeavesInAPrefillFreesVLLM(t *testing.T) { // C073, C075: the close is seen before any byte of an answer
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
			prompt := fmt.Sprintf("Leaving %s. %s", c.name, words(rand.New(rand.NewPCG(1, 2)), 8000))
			body := Body{"model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": c.stream}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			left := make(chan *Answer, 1)
			go func() {
				a, _ := Client{Base: c.base}.Ask(ctx, Completions, body, nil)
				left <- a
			}()
			await(t, 5*time.Second, "the prompt in work", func() bool { return inWork(t, engines) == 1 })
			select { // into the prefill, which takes several seconds
			case a := <-left:
				t.Fatalf("answered before the client could leave: %+v", a)
			case <-time.After(time.Second):
			}
			leave()
			begin := time.Now()
			await(t, 5*time.Second, "an idle engine", func() bool { return inWork(t, engines) == 0 })
			freed := time.Since(begin)
			t.Logf("engine free %v after the client left", freed.Round(time.Millisecond))
			if freed > 500*time.Millisecond {
				t.Errorf("the engine was busy for another %v, want at most 0.5 s", freed)
			}
			<-left
			if err := w.Idle(t.Context(), time.Second); err != nil {
				t.Error(err)
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

// A client that goes away while its answer is being written frees the engine as well.
func TestAClientThatLeavesInADecodeFreesVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			left := make(chan error, 1)
			go func() {
				_, err := Client{Base: w.URL}.Ask(ctx, Completions, Body{"model": "tiny", "prompt": "Tell a long story.", "max_tokens": 20000, "ignore_eos": true, "stream": stream}, nil)
				left <- err
			}()
			await(t, 5*time.Second, "tokens being written", func() bool { return inWork(t, engines) == 1 })
			select {
			case err := <-left:
				t.Fatalf("ended before the client could leave: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			leave()
			begin := time.Now()
			await(t, 5*time.Second, "an idle engine", func() bool { return inWork(t, engines) == 0 })
			freed := time.Since(begin)
			t.Logf("engine free %v after the client left", freed.Round(time.Millisecond))
			if freed > 500*time.Millisecond {
				t.Errorf("the engine was busy for another %v, want at most 0.5 s", freed)
			}
			<-left
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
