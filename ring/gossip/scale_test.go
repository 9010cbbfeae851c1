package gossip

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmring/warmring/ring"
)

// spreadTimes lets members place sessions at a rate for the whole cluster, and returns how long each placement took to be known
// everywhere, sorted; what was not known after the patience counts as that.
func spreadTimes(t *testing.T, all []*proxy, names []string, perSecond int, during, patience time.Duration, size uint8) []time.Duration {
	t.Helper()
	type placed struct {
		session uint64
		engine  string
		at      time.Time
		done    time.Duration
	}
	var list []*placed
	random := rand.New(rand.NewPCG(1, 2))
	look := func() {
		for _, p := range list {
			if p.done != 0 {
				continue
			}
			known := true
			for _, m := range all {
				if m.knows(p.session) != p.engine {
					known = false
					break
				}
			}
			if known {
				p.done = time.Since(p.at)
			} else if time.Since(p.at) > patience {
				p.done = patience
			}
		}
	}
	began, next := time.Now(), time.Now()
	for time.Since(began) < during {
		for ; time.Now().After(next); next = next.Add(time.Second / time.Duration(perSecond)) {
			p := all[random.IntN(len(all))]
			name := names[random.IntN(len(names))]
			now := clock()
			e := p.write(now, Entry{Key: random.Uint64(), Value: ring.EngineID(name), Kind: Session, Size: size + uint8(random.IntN(30)), Life: time.Hour})
			list = append(list, &placed{session: e.Key, engine: name, at: time.Now()})
			p.sendQuick(now, []Entry{e}, nil)
		}
		look()
		time.Sleep(2 * time.Millisecond)
	}
	for waiting := true; waiting; time.Sleep(2 * time.Millisecond) {
		look()
		waiting = slices.ContainsFunc(list, func(p *placed) bool { return p.done == 0 })
	}
	var times []time.Duration
	for _, p := range list {
		times = append(times, p.done)
	}
	slices.Sort(times)
	return times
}

// The expected rate: a new or moved session a second for every two proxies.
func TestNewsIsEverywhereWithinASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	names := engineNames(64)
	for _, n := range []int{5, 30} {
		began := time.Now()
		all := startCluster(t, n, names, nil)
		t.Logf("%d members know each other after %v", n, time.Since(began))
		before, at := sent(all), time.Now()
		times := spreadTimes(t, all, names, max(n/2, 4), 6*time.Second, 5*time.Second, 40)
		rate := float64(sent(all)-before) / time.Since(at).Seconds() / float64(n)
		p99 := times[len(times)*99/100]
		t.Logf("%d members: %d placements known everywhere after %v (half), %v (99 %%), %v (all); each member sends %.1f KB/s", n, len(times), times[len(times)/2], p99, times[len(times)-1], rate/1000)
		if p99 > time.Second || times[len(times)-1] >= 5*time.Second {
			t.Errorf("%d members: 99 %% after %v, all after %v", n, p99, times[len(times)-1])
		}
		if rate > 30_000 {
			t.Errorf("%d members send %.0f bytes per second each", n, rate)
		}
		for _, p := range all {
			_ = p.Close()
		}
	}
}

func sent(all []*proxy) (bytes uint64) {
	for _, p := range all {
		bytes += p.traffic.bytesOut.Load() + p.traffic.streamOut.Load()
	}
	return bytes
}

// Ten times the moves that are to be expected: the budget holds, and what is shed is counted.
func TestTheBudgetHoldsAtTenTimesTheMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	const n = 12
	names := engineNames(64)
	all := startCluster(t, n, names, nil)
	time.Sleep(time.Second)
	before, at := sent(all), time.Now()
	times := spreadTimes(t, all, names, 600, 5*time.Second, 3*time.Second, 20)
	rate := float64(sent(all)-before) / time.Since(at).Seconds() / n
	late := 0
	for _, took := range times {
		if took >= 3*time.Second {
			late++
		}
	}
	var news NewsView
	var skipped uint64
	for _, p := range all {
		v := p.View()
		news.Shed += v.News.Shed
		news.Cut += v.News.Cut
		skipped += v.Totals.QuickSkipped
	}
	t.Logf("%d placements in 5 s: half known everywhere after %v, %d not within 3 s; %.1f KB/s sent by each; shed %d, cut %d, straight way skipped %d",
		len(times), times[len(times)/2], late, rate/1000, news.Shed, news.Cut, skipped)
	if rate > 33_000 {
		t.Errorf("%.0f bytes per second", rate)
	}
	if skipped == 0 {
		t.Error("nothing was left out: the test tests nothing")
	}
}
