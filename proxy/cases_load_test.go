package proxy

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// C091: what engines say of their load is seconds old. One of four said that it is idle, the others that they are busy; sixty prompts
// without a common beginning arrive before anybody is asked again. They do not all go to the one that was idle: a proxy goes by
// what it has sent itself.
func TestNoHerdOnAnEngineThatWasIdleOnce(t *testing.T) {
	const page = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} %d\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} %d\n"
	release := make(chan struct{})
	engines := fleetOf(t, 4, func(w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, "{}")
	})
	for i, e := range engines {
		e.toml = "kind = \"vllm\""
		e.metrics = fmt.Sprintf(page, 20, 20)
		if i == 2 {
			e.metrics = fmt.Sprintf(page, 0, 0)
		}
	}
	p := startProxy(t, "[drain]\ndelay = \"1ms\"\nlimit = \"5s\"\n[probe]\ninterval = \"1m\"", engines...)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			if got := p.post("/v1/chat/completions", chat(words(fmt.Sprint("arrival", i), 1500))); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	count := func() (counts []int, sum int) {
		for _, e := range engines {
			counts = append(counts, len(e.got()))
			sum += len(e.got())
		}
		return counts, sum
	}
	eventually(t, "all of them to be in work", func() bool { _, sum := count(); return sum == 60 })
	counts, _ := count()
	t.Logf("by engine: %v", counts)
	for _, n := range counts {
		if n < 11 || n > 19 {
			t.Errorf("by engine: %v, want 15 give or take 4 each", counts)
			break
		}
	}
	close(release)
	all.Wait()
}
