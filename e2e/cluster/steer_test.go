package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmring/warmring/e2e"
)

// steer drains an engine through a proxy, or ends that.
func (f *fleet) steer(i int, engine string, drain bool) {
	f.t.Helper()
	f.mu.Lock()
	w, action := f.proxies[i], "undrain"
	if drain {
		f.left[engine], action = true, "drain"
	}
	f.mu.Unlock()
	answer, err := http.Post(w.Admin+"/api/engines/"+engine+"/"+action, "", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		f.t.Fatalf("%s of %s: %s", action, engine, answer.Status)
	}
}

// leave says that sessions have reason to leave an engine from now on, or no longer.
func (f *fleet) leave(engine string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[engine] = yes
}

func (f *fleet) mayLeave(engine string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left[engine]
}

// mayMove tells that there are engines that sessions have reason to leave.
func (f *fleet) mayMove() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, yes := range f.left {
		if yes {
			return true
		}
	}
	return false
}

// overload gives an engine long prompts until it has more than enough: all others are drained while they come. What it answers ends them.
func (f *fleet) overload(engine string, prompts int) (release func()) {
	f.t.Helper()
	var others []string
	for name := range f.engines {
		if name != engine && !f.mayLeave(name) {
			others = append(others, name)
		}
	}
	for _, name := range others {
		f.steer(0, name, true)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	var asking sync.WaitGroup
	w := f.running()[0]
	for i := range prompts {
		f.crowds++
		body := e2e.Body{"model": "m", "stream": true, "messages": []e2e.Message{{Role: "user", Content: fmt.Sprintf("long %d %d %s", f.crowds, i, strings.Repeat("word ", 80_000))}}}
		asking.Go(func() { _, _ = e2e.Client{Base: w.URL}.Ask(ctx, "/v1/chat/completions", body, nil) })
	}
	f.t.Cleanup(cancel)
	began := time.Now()
	for {
		m, err := e2e.Scrape(f.t.Context(), w.Admin+"/metrics")
		if err != nil {
			f.t.Fatal(err)
		}
		if m.Sum("warmring_engine_charged_fresh_tokens", fmt.Sprintf("engine=%q", engine)) > float64(prompts)*60_000 {
			break
		}
		if time.Since(began) > patience {
			f.t.Fatalf("the long prompts did not come to %s: %v tokens are charged there", engine, m.Sum("warmring_engine_charged_fresh_tokens", fmt.Sprintf("engine=%q", engine)))
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, name := range others {
		f.steer(0, name, false)
		f.leave(name, false)
	}
	f.settle()
	return func() { cancel(); asking.Wait() }
}
