package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// C134: long prompts of three clients in slices, short turns at random moments, so that slices end in the very moment in
// which they are taken back, and some clients leave. Whoever stays has one whole answer, each body is sent whole once, and
// the engine never has two copies of anything.
func TestSlicesAndPreemptionsAtRandom(t *testing.T) {
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e, p := simulated(t, mode, "lanes.border = 1000\nlanes.target = \"10ms\"")
			if _, _, _, err := ask(p, chatStream("hi"), "X-Session-Id", "short"); err != nil {
				t.Fatal(err)
			}
			e.ClearLog()
			random := rand.New(rand.NewPCG(7, uint64(mode)))
			var mu sync.Mutex
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			var longs, shorts sync.WaitGroup
			done := make(chan struct{})
			staying := map[string]string{} // request → body
			for client := range 3 {
				longs.Go(func() {
					for round := range 3 {
						id := fmt.Sprintf("long %d %d", client, round)
						body := chatStream(words(id, 3000+draw(6000)))
						ctx, leave := context.WithCancel(context.Background())
						leaving := draw(3) == 0
						if leaving {
							time.AfterFunc(time.Duration(draw(400))*time.Millisecond, leave)
						}
						got := <-later(p, ctx, body, "X-Session-Id", id, "X-Request-Id", id)
						leave()
						if leaving {
							continue
						}
						mu.Lock()
						staying[id] = body
						mu.Unlock()
						if got.err != nil || !strings.HasSuffix(got.text, doneEvent) || strings.Contains(got.text, `"abort"`) {
							t.Errorf("%s got %v %.300q", id, got.err, got.text)
						}
					}
				})
			}
			for i := range 2 {
				shorts.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-done:
							return
						case <-time.After(time.Duration(draw(60)) * time.Millisecond):
						}
						if got := <-later(p, context.Background(), chatStream(fmt.Sprint("short ", i, n)), "X-Session-Id", fmt.Sprint("short", i)); got.err != nil {
							t.Errorf("a short turn got %v", got.err)
						}
					}
				})
			}
			lanes := p.upstreams()["e"].lanes
			shorts.Go(func() { // the controller would rarely hit the moment in which a slice ends
				taken := map[uint64]int{}
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(draw(40)) * time.Millisecond):
					}
					lanes.mu.Lock()
					for id, r := range lanes.members {
						if r.decision.Prompt > 1000 && r.lane.flight.Load() == inEngine && taken[id] < 8 {
							taken[id]++
							r.preempt()
						}
					}
					lanes.mu.Unlock()
				}
			})
			longs.Wait()
			close(done)
			shorts.Wait()
			log := e.Log()
			onlyOneCopyEach(t, log)
			answered := map[string]int{}
			for _, entry := range log {
				id := entry.Header.Get("X-Request-Id")
				if body := staying[id]; body != "" && entry.Outcome == sim.Answered && string(ridMember.ReplaceAll(entry.Body, nil)) == body {
					answered[id]++
				}
			}
			for id := range staying {
				if answered[id] != 1 {
					t.Errorf("%s was answered whole %d times by the engine", id, answered[id])
				}
			}
			p.settled()
			v := lanes.view()
			if v.InFlight+v.Back+v.Held+v.Waiting != 0 {
				t.Errorf("left behind: %+v", v)
			}
			t.Logf("%d slices, %s times taken back, %d requests", v.Totals.Slices, p.metric("warmring_preemptions_total"), len(log))
		})
	}
}
