package gossip

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/ring"
)

// spreadTimes lets members place sessions at a rate for the whole cluster, and returns how long each placement took to be known
// everywhere, sorted, and the sizes of those that were not within the patience.
func spreadTimes(t *testing.T, all []*proxy, names []string, perSecond int, during, patience time.Duration, size uint8) (times []time.Duration, missing []uint8) {
	t.Helper()
	type placed struct {
		session uint64
		engine  string
		at      time.Time
		done    time.Duration
		size    uint8
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
		for ; time.Now().After(next) && time.Since(began) < during; next = next.Add(time.Second / time.Duration(perSecond)) {
			p := all[random.IntN(len(all))]
			name := names[random.IntN(len(names))]
			now := clock()
			e := p.write(now, Entry{Key: random.Uint64(), Value: ring.EngineID(name), Kind: Session, Size: size + uint8(random.IntN(30)), Life: time.Hour})
			list = append(list, &placed{session: e.Key, engine: name, at: time.Now(), size: e.Size})
			p.sendQuick(now, p.sequence.Add(1), []Entry{e}, nil)
		}
		look()
		time.Sleep(2 * time.Millisecond)
	}
	for waiting := true; waiting; time.Sleep(2 * time.Millisecond) {
		look()
		waiting = slices.ContainsFunc(list, func(p *placed) bool { return p.done == 0 })
	}
	for _, p := range list {
		times = append(times, p.done)
		if p.done == patience {
			missing = append(missing, p.size)
		}
	}
	slices.Sort(times)
	return times, missing
}

// The expected rate: a new or moved session a second for every two proxies.
func TestNewsIsEverywhereWithinASecond(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes some seconds, and measures")
	}
	t.Parallel()
	names := engineNames(64)
	for _, n := range []int{5, 30} {
		began := time.Now()
		all := startCluster(t, n, names, nil)
		t.Logf("%d members know each other after %v", n, time.Since(began))
		before, at := sent(all), time.Now()
		times, _ := spreadTimes(t, all, names, max(n/2, 4), 4*time.Second, patience, 40)
		during := time.Since(at).Seconds()
		rate := float64(sent(all)-before) / during / float64(n)
		p99 := times[len(times)*99/100]
		t.Logf("%d members: %d placements known everywhere after %v (half), %v (99 %%), %v (all); each member sends %.1f KB/s", n, len(times), times[len(times)/2], p99, times[len(times)-1], rate/1000)
		if times[len(times)-1] >= patience {
			t.Errorf("%d members: not all placements are known everywhere", n)
		} else if p99 > time.Second || times[len(times)-1] >= 5*time.Second {
			tooSlow(t, "%d members: 99 %% after %v, all after %v", n, p99, times[len(times)-1])
		}
		if rate*during > 30_000*(during+1) { // what was saved in a second may be spent at once
			t.Errorf("%d members send %.0f bytes per second each", n, rate)
		}
		closeAll(all)
	}
}

// closeAll ends members at the same time.
func closeAll(all []*proxy) {
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(func() { _ = p.Close() })
	}
	group.Wait()
}

func sent(all []*proxy) (bytes uint64) {
	for _, p := range all {
		bytes += p.traffic.bytesOut.Load() + p.traffic.streamOut.Load()
	}
	return bytes
}

// Ten times the moves that are to be expected fit; a hundred times do not, but the budget holds, the long contexts are known more
// often than the short ones, and what is shed is counted.
func TestTheBudgetHoldsWhateverMoves(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes some seconds, and measures")
	}
	t.Parallel()
	const n = 12
	names := engineNames(64)
	for _, more := range []int{10, 100} {
		all := startCluster(t, n, names, nil)
		before, at := sent(all), time.Now()
		times, missing := spreadTimes(t, all, names, more*n/2, 5*time.Second, 3*time.Second, 20)
		during := time.Since(at).Seconds()
		rate := float64(sent(all)-before) / during / n
		late, short := 0, 0
		for _, took := range times {
			if took >= 3*time.Second {
				late++
			}
		}
		for _, size := range missing {
			if size < 35 {
				short++
			}
		}
		var shed, skipped uint64
		for _, p := range all {
			v := p.View()
			shed += v.News.Shed + v.News.Cut
			skipped += v.Totals.QuickSkipped
		}
		t.Logf("%d times the moves: %d placements in 5 s, half known everywhere after %v, 99 %% after %v, %d not within 3 s, of these %d short ones; %.1f KB/s sent by each; shed %d, straight way skipped %d",
			more, len(times), times[len(times)/2], times[len(times)*99/100], late, short, rate/1000, shed, skipped)
		if rate*during > 30_000*(during+1) { // what was saved in a second may be spent at once
			t.Errorf("%.0f bytes per second", rate)
		}
		switch {
		case more == 10 && late*100 > len(times):
			tooSlow(t, "%d of %d were not known within 3 s", late, len(times))
		case more == 100 && shed+skipped == 0:
			t.Error("nothing was left out: the test tests nothing")
		case more == 100 && short*2 < len(missing): // of both there are as many
			tooSlow(t, "of %d that were left out, %d were short: the shortest should go first", len(missing), short)
		}
		closeAll(all)
	}
}
