package gossip

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/ring"
)

// However a member's messages travel, in any order and some of them twice, what is believed in the end is what it told last of each
// engine: the library itself hands on the packets of a burst in reverse.
func TestLoadsComeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []Message
		charged := map[uint32]ring.Load{} // by the member that tells
		for range rapid.IntRange(1, 12).Draw(t, "messages") {
			m := Message{Sender: 7, Sequence: uint64(len(sent) + 1), Interval: heartbeat}
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				load := ring.Load{Engine: rapid.Uint32Range(1, 4).Draw(t, "engine"), Waiting: int64(rapid.IntRange(0, 3).Draw(t, "waiting")) * 1000}
				load.Queued = int(load.Waiting / 1000)
				charged[load.Engine] = load
				m.Loud = append(m.Loud, load)
			}
			if rapid.IntRange(0, 2).Draw(t, "report") == 0 {
				m.HasLoads, m.Loud = true, nil
				for _, load := range charged {
					if load.Queued > 0 {
						m.Loads = append(m.Loads, load)
					}
				}
			}
			sent = append(sent, m)
		}
		again := rapid.SliceOfN(rapid.SampledFrom(sent), 0, 5).Draw(t, "twice")
		l, believed := newLoads(), map[uint32]ring.Load{}
		for _, m := range rapid.Permutation(append(sent, again...)).Draw(t, "order") {
			for _, sum := range l.take(1, &m) {
				believed[sum.Engine] = sum
			}
		}
		for id := range uint32(5) {
			want, got := charged[id], believed[id]
			want.Engine, got.Engine = id, id
			if want != got {
				t.Fatalf("engine %d: %+v is believed, the member's last word was %+v", id, got, want)
			}
		}
	})
}

// While a report is put together a prefill begins and is told straight away. The report must not take that back with what it saw before.
func TestAReportDoesNotTakeBackWhatWasToldMeanwhile(t *testing.T) {
	t.Parallel()
	const off, armed, held = 0, 1, 2
	var stage atomic.Int32
	begin, seen, checked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	all := startCluster(t, 2, engineNames(2), func(i int, o *Options) {
		o.Sync = time.Hour
		if i == 0 {
			o.EngineStates = func() []EngineState {
				switch {
				case stage.CompareAndSwap(armed, held):
					close(begin)
					<-seen
				case stage.Load() == held:
					<-checked // no second report hides what the first one did
				}
				return nil
			}
		}
	})
	teller, hearer := all[0], all[1]
	waiting := func() (tokens int64, report uint64) {
		l := hearer.Cluster.loads
		l.mu.Lock()
		defer l.mu.Unlock()
		m := l.members[teller.node]
		if m == nil {
			return 0, 0
		}
		for _, load := range m.engines {
			tokens += load.Waiting
		}
		return tokens, m.report
	}
	stage.Store(armed)
	<-begin
	_, before := waiting()
	var d ring.Decision
	ch, err := teller.placer.Place(&ring.Turn{Now: clock(), Session: 1, Prompt: promptOf(1, 100_000)}, &d)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
	eventually(t, "the prefill to be told", func() bool { n, _ := waiting(); return n > 0 })
	close(seen)
	eventually(t, "the report", func() bool { _, report := waiting(); return report > before })
	if n, _ := waiting(); n == 0 {
		t.Error("the report, put together before the prefill began, says that there is none")
	}
	close(checked)
}

// News of a burst uses up the straight way: loads still go, and those that it has no room for go as they are as soon as it has.
func TestLoadsAreToldAlthoughNewsHasFilledTheStraightWay(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 2, engineNames(2), nil)
	p := all[0]
	at := clock() + int64(time.Hour) // the bucket does not fill before that
	var burst []Entry
	for i := range uint64(2000) {
		burst = append(burst, Entry{Key: i + 1, Value: 1, Version: 1, Node: p.node, Kind: Session, Life: time.Hour})
	}
	if p.sendQuick(at, p.sequence.Add(1), burst, nil); p.counts.quickSkipped.Load() == 0 {
		t.Fatal("the burst fits: the test tests nothing")
	}
	var loads []ring.Load
	for i := range uint32(maxPacket / 2 / loadSize) {
		loads = append(loads, ring.Load{Engine: 1<<31 + i, Waiting: 1 << 40, Queued: 1 << 20, Running: 1 << 20})
	}
	told := p.counts.quickSent.Load()
	if left := p.sendQuick(at, p.sequence.Add(1), burst, loads); left != nil || p.counts.quickSent.Load() != told+1 {
		t.Errorf("a load is left behind by entries: %v", left)
	}
	p.quick.takeAbove(at, p.quick.view().Left, 0)
	told = p.counts.quickSent.Load()
	var d ring.Decision
	ch, err := p.placer.Place(&ring.Turn{Now: clock(), Session: 1, Prompt: promptOf(1, 100_000)}, &d)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
	eventually(t, "the load to wait", func() bool { return p.sendNews(at) })
	if p.counts.quickSent.Load() != told {
		t.Error("it was sent although there was no room")
	}
	p.sendNews(at + int64(time.Second)) // enough is saved by now; whoever tries next may spend it
	eventually(t, "the load to be told when there is room", func() bool { return p.counts.quickSent.Load() > told })
}

// Behind several long prefills of several members, each of them is to be asked, and no more than a few.
func TestAllWhoseWorkIsInTheWayAreNamed(t *testing.T) {
	l := newLoads()
	for member, waiting := range []int64{0, 5000, 30_000, 0, 9000} {
		l.take(1, &Message{Sender: uint32(member + 1), Sequence: 1, HasLoads: true, Loads: []ring.Load{{Engine: 7, Waiting: waiting, Queued: 1}, {Engine: 8, Waiting: 50_000}}})
	}
	if got, want := l.waiters(7, 5000), []waiter{{3, 30_000}, {5, 9000}}; !slices.Equal(got, want) {
		t.Errorf("%v are in the way, want %v", got, want)
	}
	if got := l.waiters(9, 0); len(got) > 0 {
		t.Errorf("%v wait on an engine that nobody told of", got)
	}
	for member := range uint32(100) {
		l.take(1, &Message{Sender: member + 100, Sequence: 1, HasLoads: true, Loads: []ring.Load{{Engine: 7, Waiting: 20_000 + int64(member)}}})
	}
	if got := l.waiters(7, 5000); len(got) != maxWaiters || got[0].tokens != 30_000 || got[1].tokens != 20_099 {
		t.Errorf("of a hundred: %v", got)
	}
}
