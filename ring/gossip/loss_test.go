package gossip

import (
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/ring"
)

// An overloaded member drops messages and counts them; nothing waits for it, and it goes on afterwards.
func TestAFullInboxDropsAndCounts(t *testing.T) {
	t.Parallel()
	stuck, release := make(chan struct{}), make(chan struct{})
	p := startMember(t, engineNames(2), nil, func(o *Options) {
		o.OnDrain = func(string, bool) { close(stuck); <-release }
	})
	entry := func(key uint64, kind Kind) []byte {
		m := Message{Sender: 7, Sequence: 1, Entries: []Entry{{Key: key, Value: 1, Version: 3, Node: 4, Kind: kind, Life: time.Hour}}}
		return m.Append(nil)
	}
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	t.Cleanup(free)
	take := (*delegate)(p.Cluster).NotifyMsg
	take(entry(uint64(ring.EngineID("e0")), Drain))
	<-stuck // the reader is held up
	const tooMany = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(maxInbox + tooMany) {
			take(entry(1000+i, Session))
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("taking messages in waits for the reader")
	}
	if v := p.View(); v.Totals.InboxFull != tooMany || v.Inbox != maxInbox {
		t.Errorf("%d dropped, %d wait", v.Totals.InboxFull, v.Inbox)
	}
	free()
	eventually(t, "the inbox to be read", func() bool { return p.View().Inbox == 0 && p.book.Len() == 1+maxInbox })
	take(entry(5, Session))
	eventually(t, "news after that", func() bool { _, ok := p.book.Get(clock(), 5, Session); return ok })
}

// known is how many of the sessions each of the others knows, all together, where they were placed.
func known(all []*proxy, lives map[uint64]string) (n int) {
	for s, engine := range lives {
		for _, p := range all {
			if p.knows(s) == engine {
				n++
			}
		}
	}
	return n
}

// Packets are lost, late and come twice, and nothing is compared: what is sent on is enough for all but a few, and what comes twice is
// taken once.
func TestLossDelayAndRepetition(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	t.Parallel()
	for _, loss := range []float64{0.01, 0.1, 0.3} {
		net := newNetwork(t)
		all := startCluster(t, 5, engineNames(8), func(_ int, o *Options) { o.Transport, o.Sync = net.wrap, 10*time.Minute })
		for _, p := range all {
			p.compareUntil.Store(0)
		}
		eventually(t, "the comparisons of the beginning to end", func() bool {
			for _, p := range all {
				if len(p.replies) > 0 || p.compareUntil.Load() != 0 {
					return false
				}
			}
			return true
		})
		net.set(func() { net.loss, net.twice, net.delay = loss, 0.5, 30*time.Millisecond })
		compared := func() (n uint64) {
			for _, p := range all {
				n += p.counts.compared.Load()
			}
			return n
		}
		before := compared()
		lives := map[uint64]string{}
		for s := range uint64(200) {
			lives[s+1] = all[s%5].place(t, s+1).Engine
			if s%20 == 0 { // not all in one burst
				time.Sleep(5 * time.Millisecond)
			}
		}
		want := len(lives) * len(all)
		eventually(t, "the news to be sent as often as it should", func() bool {
			if known(all, lives) == want {
				return true
			}
			for _, p := range all {
				if v := p.View(); v.Untold > 0 || v.News.Queued > 0 || v.Inbox > 0 {
					return false
				}
			}
			return true
		})
		got, twice, imported := known(all, lives), uint64(0), uint64(0)
		for _, p := range all {
			v := p.View()
			twice += v.Book.Known
			imported += v.Totals.Imported
		}
		t.Logf("loss %2.0f %%: %d of %d known; %d came again", loss*100, got, want, twice)
		if n := compared() - before; n > 0 {
			t.Logf("%d comparisons: somebody was taken for lost meanwhile", n)
		} else if got*100 < want*97 {
			t.Errorf("%.0f %% loss: %d of %d are known", loss*100, got, want)
		}
		if twice == 0 {
			t.Error("nothing came twice: the test tests nothing")
		}
		if most := uint64(want - len(lives)); imported > most { // each but its own
			t.Errorf("%d placements were taken in, there are %d", imported, most)
		}
		closeAll(all)
	}
}

// When no packet arrives at all, comparison by stream brings everything.
func TestComparisonBringsWhatNoPacketDid(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	all := startCluster(t, 3, engineNames(8), func(_ int, o *Options) { o.Transport, o.Sync = net.wrap, time.Second })
	net.set(func() { net.loss = 1 })
	lives := map[uint64]string{}
	for s := range uint64(60) {
		lives[s+1] = all[s%3].place(t, s+1).Engine
	}
	eventually(t, "everybody to know everything", func() bool { return known(all, lives) == len(lives)*len(all) })
}

// A request to let a turn by is lost, or comes twice: it is done once at most, and whoever asks has an answer in any case.
func TestAnAskIsDoneOnceHoweverItTravels(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	var mu sync.Mutex
	done := map[uint64]int{}
	all := startCluster(t, 2, engineNames(2), func(i int, o *Options) {
		o.Transport = net.wrap
		o.OnPreempt = func(_ string, turn uint64, _ bool) Answer {
			mu.Lock()
			defer mu.Unlock()
			done[turn]++
			return Freed
		}
	})
	net.set(func() { net.loss, net.twice = 0.4, 0.6 })
	const asks = 40
	answers := make(chan Answer, asks)
	for turn := range uint64(asks) {
		all[0].Preempt(all[1].Name(), "e0", turn+1, func(a Answer) { answers <- a })
	}
	freed := 0
	for range asks {
		if <-answers == Freed {
			freed++
		}
	}
	mu.Lock()
	t.Logf("of %d asked %d were done and %d answered", asks, len(done), freed)
	if len(done) < freed || freed < asks*6/10 { // once each, four in ten would be answered
		t.Errorf("%d done, %d answered", len(done), freed)
	}
	for turn, n := range done {
		if n != 1 {
			t.Errorf("turn %d was let by %d times", turn, n)
		}
	}
	clear(done)
	mu.Unlock()
	if v := all[1].View(); v.Asks.Repeated == 0 {
		t.Error("nothing came twice: the test tests nothing")
	}
	net.set(func() { net.loss = 1 })
	all[0].Preempt(all[1].Name(), "e0", 1000, func(a Answer) { answers <- a })
	if a := <-answers; a != NoAnswer {
		t.Errorf("with no network: %v", a)
	}
	mu.Lock()
	defer mu.Unlock()
	if done[1000] != 0 {
		t.Error("it was done without a network")
	}
}

// Proxies that do not hear of each other's prefills all take the one idle engine. These do.
func TestNoHerdOnTheIdleEngine(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	all := startCluster(t, 4, names, nil)
	waiting := func(p *proxy, engine string) (tokens int) { // as the next decision sees it
		var d ring.Decision
		ch, err := p.placer.Place(&ring.Turn{Now: clock()}, &d)
		if err != nil {
			t.Fatal(err)
		}
		ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
		for _, r := range d.Runners {
			if r.Engine == engine {
				return r.Waiting
			}
		}
		return 0
	}
	place := func(p *proxy, session uint64, bytes int) ring.Decision {
		var d ring.Decision
		ch, err := p.placer.Place(&ring.Turn{Now: clock(), Session: session, Prompt: promptOf(session, bytes)}, &d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1}) })
		return d
	}
	charged := map[string]int{}
	session := uint64(0)
	for range 12 { // each by another proxy, which has heard of all before
		session++
		d := place(all[session%4], session, 400_000)
		charged[d.Engine]++
		for _, p := range all {
			eventually(t, "the prefill", func() bool { return waiting(p, d.Engine) >= charged[d.Engine]*80_000 })
		}
	}
	t.Logf("prefills by engine: %v", charged)
	for _, name := range names {
		if charged[name] != 3 {
			t.Errorf("%s has %d prefills of 12, each should have 3", name, charged[name])
		}
	}
}
