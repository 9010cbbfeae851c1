package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
)

// How long a moved session's binding takes to be known everywhere, among five.
func TestAMoveIsKnownEverywhere(t *testing.T) {
	f := newFleet(t, 5, 4)
	c := f.crowd(48, true)
	c.heard("5 proxies", 2)
	c.moved(100)
}

// moved lets sessions move one after another, and tells how long it took until all proxies had heard of each.
func (c *crowd) moved(moves int) {
	f := c.f
	f.t.Helper()
	var took []time.Duration
	for i := 0; len(took) < moves; i++ {
		engine, at := fmt.Sprint("e", i%4), i%len(f.proxies)
		f.steer(at, engine, true)
		f.settle()
		for _, s := range c.sessions {
			if s.lives != engine {
				continue
			}
			if c.turn(s); s.lives == engine {
				f.t.Fatalf("session %d stays on the drained %s", s.number, engine)
			}
			took = append(took, f.heard(s.last))
			if len(took) == moves {
				break
			}
		}
		f.steer((at+1)%len(f.proxies), engine, false)
		f.settle()
		f.leave(engine, false)
	}
	slices.Sort(took)
	ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	p99 := took[len(took)*99/100]
	f.t.Logf("%d proxies: %d moves known everywhere after %v (half), %v (99 %%), %v (all)", len(f.proxies), len(took), ms(took[len(took)/2]), ms(p99), ms(took[len(took)-1]))
	if p99 > time.Second && figures {
		f.t.Errorf("%d proxies: 99 %% of moves were known everywhere after %v only", len(f.proxies), p99)
	}
	c.judge(fmt.Sprintf("%d proxies, those moves", len(f.proxies)))
	c.heard(fmt.Sprintf("%d proxies, after them", len(f.proxies)), 1)
}

// Thirty processes know each other, whoever gets a turn knows its session, and at ten times the moves to be expected each sends what
// its budget allows.
func TestThirtyProxiesAreOneCluster(t *testing.T) {
	if raced {
		t.Skip("thirty processes that look for races are more than a small machine can run")
	}
	began := time.Now()
	f := newFleet(t, 30, 4)
	defer f.end()
	t.Logf("30 proxies know each other %v after the first was started", time.Since(began))
	c := f.crowd(30, true)
	c.heard("30 proxies", 4)
	quiet := f.sent()
	t.Logf("each sent %.1f KB/s until then", quiet.mean()/1000/time.Since(began).Seconds())
	c.moved(40)
	f.busy(150, 4*time.Second)
	f.settle()
	lost := 0.0
	for _, m := range f.metrics() {
		lost += m.Sum("warmring_cluster_members_lost_total")
	}
	t.Logf("%v times a member was taken for lost", lost)
}

// budget is cluster.budget's default, in bytes per second.
const budget = 30 << 10

// busy begins so many sessions a second for a while, at any proxy: each is told to all.
func (f *fleet) busy(perSecond int, long time.Duration) {
	f.t.Helper()
	random := rand.New(rand.NewPCG(5, 6))
	before, shed, began := f.sent(), f.shed(), time.Now()
	begun, failed := 0, 0
	var mu sync.Mutex
	var asking sync.WaitGroup
	for next := began; time.Since(began) < long; next = next.Add(time.Second / time.Duration(perSecond)) {
		time.Sleep(time.Until(next))
		w := f.any(random, nil)
		begun++
		f.crowds++
		body := e2e.Body{"model": "m", "messages": []e2e.Message{{Role: "user", Content: fmt.Sprint("short ", f.crowds)}}}
		header := map[string]string{"X-Session-Id": fmt.Sprint("short-", f.crowds)}
		asking.Go(func() {
			a, err := e2e.Client{Base: w.URL}.Ask(f.t.Context(), "/v1/chat/completions", body, header)
			if err != nil || a.Status != 200 {
				mu.Lock()
				defer mu.Unlock()
				failed++
			}
		})
	}
	asking.Wait()
	after, during := f.sent(), time.Since(began).Seconds()
	most := 0.0
	for name, bytes := range after {
		most = max(most, bytes-before[name])
	}
	f.t.Logf("%d proxies, %.0f new sessions a second: each sends %.1f KB/s, none more than %.1f; shed on the way: %v", len(after), float64(begun)/during,
		(after.mean()-before.mean())/1000/during, most/1000/during, f.shed()-shed)
	if most > budget*(during+1) { // what was saved in a second may be spent at once
		f.t.Errorf("one sent %.0f bytes in %.1f s", most, during)
	}
	if failed > 0 {
		f.t.Errorf("%d of %d sessions failed", failed, begun)
	}
}

// traffic is bytes by proxy.
type traffic map[string]float64

func (b traffic) mean() float64 {
	sum := 0.0
	for _, n := range b {
		sum += n
	}
	return sum / float64(max(len(b), 1))
}

// sent is all that each proxy has told others so far, headers and streams included.
func (f *fleet) sent() traffic {
	f.t.Helper()
	sent := traffic{}
	for name, m := range f.metrics() {
		sent[name] = m.Sum("warmring_cluster_packet_bytes_sent_total") + m.Sum("warmring_cluster_stream_bytes_sent_total")
	}
	return sent
}

func (f *fleet) shed() (sum float64) {
	f.t.Helper()
	for _, m := range f.metrics() {
		sum += m.Sum("warmring_cluster_shed_total")
	}
	return sum
}
