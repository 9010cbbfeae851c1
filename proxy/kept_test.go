package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// One bad sample must not end preemption, and an end must not be for ever: without
// preemption no better sample can come.
func TestOneBadMomentDoesNotEndPreemption(t *testing.T) {
	var k keptShare
	now := time.Now()
	k.learn(0, 10_000, now)
	if share := k.share(now); share != 0 {
		t.Errorf("one sample gives %v, want unknown", share)
	}
	for range 4 {
		k.learn(0, 10_000, now)
	}
	if share := k.share(now); share == 0 || share > 0.1 {
		t.Errorf("five bad samples give %v", share)
	}
	if share := k.share(now.Add(oldKept + time.Second)); share != 0 {
		t.Errorf("old samples still give %v", share)
	}
	k.learn(9_000, 10_000, now)
	k.learn(9_000, 10_000, now)
	k.learn(100, 500, now) // too little to say anything
	k.learn(9_000, 10_000, now)
	if share := k.share(now); share < 0.85 || share > 0.95 {
		t.Errorf("good samples give %v", share)
	}
	k.forget()
	if share := k.share(now); share != 0 {
		t.Errorf("after a restart %v", share)
	}
}

// An SGLang that does not know /abort_request finds out about closed connections
// seconds later: a long prompt sent again by then would live twice.
func TestAnSGLangWithoutAbortIsOnlyHeldBack(t *testing.T) {
	waiting := make(chan struct{}, 1)
	e := newFakeEngine(t, "a", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort_request" {
			http.NotFound(w, r)
			return
		}
		waiting <- struct{}{}
		<-r.Context().Done()
	})
	p := startProxyTOML(t, fmt.Sprintf("listen = \"127.0.0.1:0\"\n[[engine]]\nname = \"a\"\nkind = \"sglang\"\nurl = %q\n", e.URL))
	eventually(t, "the engine to be ready", func() bool { return placerState(p.fleet.Engines()[0].State()).String() == "ready" })
	up := p.upstreams()["a"]
	if !up.canPreempt() {
		t.Fatal("an SGLang that has not refused yet is taken for one that cannot stop")
	}
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, _ := http.NewRequestWithContext(ctx, "POST", p.url+"/v1/chat/completions", strings.NewReader(chatStream("hi")))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-waiting
	leave()
	<-gone
	eventually(t, "the refusal to be noted", func() bool { return !up.canPreempt() })
	if !strings.Contains(p.log.String(), "only held back") {
		t.Error("nobody is told")
	}
}
