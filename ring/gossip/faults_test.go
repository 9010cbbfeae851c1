package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// network is what lies between the members of a test: it loses, delays, repeats and cuts.
type network struct {
	mu     sync.Mutex
	sides  map[string]int // of a cut: addresses on different sides do not reach each other
	oneWay bool           // the cut lets through what side 0 sends
	loss   float64
	twice  float64
	delay  time.Duration
	later  sync.WaitGroup
	end    context.Context
}

func newNetwork(t *testing.T) *network {
	end, stop := context.WithCancel(context.Background())
	n := &network{sides: map[string]int{}, end: end}
	t.Cleanup(func() { n.set(stop); n.later.Wait() })
	return n
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// faulty is one member's end of it.
type faulty struct {
	memberlist.NodeAwareTransport
	n   *network
	own string
}

func (n *network) wrap(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
	port := inner.(*memberlist.NetTransport).GetAutoBindPort()
	return &faulty{NodeAwareTransport: inner, n: n, own: fmt.Sprintf("127.0.0.1:%d", port)}
}

func (f *faulty) fate(to string) (cut bool, times int, delay time.Duration) {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if from, to := n.sides[f.own], n.sides[to]; from != to && !(n.oneWay && from == 0) {
		return true, 0, 0
	}
	times = 1
	if rand.Float64() < n.loss {
		times = 0
	} else if rand.Float64() < n.twice {
		times = 2
	}
	if n.delay > 0 {
		delay = rand.N(n.delay)
	}
	return false, times, delay
}

func (f *faulty) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	_, times, delay := f.fate(a.Addr)
	for range times {
		if delay == 0 {
			if _, err := f.NodeAwareTransport.WriteToAddress(b, a); err != nil {
				return time.Now(), err
			}
			continue
		}
		later := slices.Clone(b)
		f.n.set(func() {
			if f.n.end.Err() != nil { // a probe of a member that has ended
				return
			}
			f.n.later.Go(func() {
				select {
				case <-time.After(delay):
					_, _ = f.NodeAwareTransport.WriteToAddress(later, a)
				case <-f.n.end.Done():
				}
			})
		})
	}
	return time.Now(), nil
}

func (f *faulty) DialAddressTimeout(a memberlist.Address, limit time.Duration) (net.Conn, error) {
	if cut, _, _ := f.fate(a.Addr); cut {
		select {
		case <-time.After(min(limit, 300*time.Millisecond)):
		case <-f.n.end.Done():
		}
		return nil, errors.New("cut")
	}
	return f.NodeAwareTransport.DialAddressTimeout(a, limit)
}

// agree is how many sessions not all members know to be at the same place.
func agree(all []*proxy, sessions []uint64) (differing int) {
	for _, s := range sessions {
		first := all[0].knows(s)
		for _, p := range all[1:] {
			if first == "" || p.knows(s) != first {
				differing++
				break
			}
		}
	}
	return differing
}

// A cut of 10 s in which both sides place the same sessions: afterwards they agree, on a quiet machine within 5 s (C106).
func TestAPartitionHealsByItself(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	t.Parallel()
	net := newNetwork(t)
	names := engineNames(8)
	all := startCluster(t, 5, names, func(_ int, o *Options) { o.Transport = net.wrap })
	var sessions []uint64
	for s := range uint64(100) {
		sessions = append(sessions, s+1)
		all[s%5].place(t, s+1)
	}
	eventually(t, "agreement", func() bool { return agree(all, sessions) == 0 })

	net.set(func() {
		for _, p := range all[3:] {
			net.sides[p.Address()] = 1
		}
	})
	deadline := time.Now().Add(10 * time.Second)
	eventually(t, "both sides to notice", func() bool { return all[0].members.count() == 2 && all[4].members.count() == 1 })
	if v := all[0].View(); v.Lost != 2 {
		t.Errorf("%d lost members are told", v.Lost)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for time.Now().Before(deadline) { // sessions move on both sides, each in its own way
		s := sessions[random.IntN(len(sessions))]
		for _, p := range []*proxy{all[0], all[4]} {
			e := ring.EngineID(names[random.IntN(len(names))])
			entry := p.write(clock(), Entry{Key: s, Value: e, Kind: Session, Size: 60, Life: time.Hour})
			p.placer.Import(clock(), []ring.Binding{entry.binding()})
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("at the end of the cut %d of %d sessions differ", agree(all, sessions), len(sessions))
	net.set(func() { clear(net.sides) })
	took := eventually(t, "agreement after the cut", func() bool {
		for _, p := range all {
			if p.members.count() != 4 {
				return false
			}
		}
		return agree(all, sessions) == 0
	})
	t.Logf("whole and agreed %v after the cut", took)
	if took > 5*time.Second && !raced {
		tooSlow(t, "agreed %v after the cut", took)
	}
	for _, s := range sessions { // and the placers act on it
		want := all[0].knows(s)
		for _, p := range all {
			eventually(t, "the placer to follow", func() bool { return p.place(t, s).Engine == want })
		}
	}
}

// What one side sends arrives, what the other sends does not.
func TestAOneWayCutHeals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s")
	}
	t.Parallel()
	net := newNetwork(t)
	all := startCluster(t, 3, engineNames(8), func(_ int, o *Options) { o.Transport = net.wrap })
	net.set(func() { net.sides[all[2].Address()], net.oneWay = 1, true })
	time.Sleep(4 * time.Second)
	all[0].place(t, 1)
	all[2].place(t, 2)
	net.set(func() { clear(net.sides) })
	took := eventually(t, "agreement", func() bool {
		return agree(all, []uint64{1, 2}) == 0 && all[0].members.count() == 2 && all[2].members.count() == 2
	})
	t.Logf("agreed %v after the cut", took)
}

// Wall clocks five minutes apart decide nothing: each move is followed.
func TestClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3, engineNames(8), func(i int, o *Options) {
		o.Wall = func() time.Time { return time.Now().Add(time.Duration(i-1) * 5 * time.Minute) }
	})
	names := engineNames(8)
	for i := range 60 { // one session moves from proxy to proxy
		p := all[i%3]
		e := ring.EngineID(names[i%8])
		p.write(clock(), Entry{Key: 5, Value: e, Kind: Session, Size: 60, Life: time.Hour})
		for _, q := range all {
			eventually(t, "the move", func() bool { return q.knows(5) == names[i%8] })
		}
	}
}

// Whatever comes from outside, nothing crashes, nothing is believed, all is counted.
func TestGarbageFromOutside(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		all := startCluster(t, 2, engineNames(2), func(_ int, o *Options) {
			if key != nil {
				o.Keys = [][]byte{key}
			}
		})
		before := all[0].book.Totals()
		random := rand.New(rand.NewPCG(1, 2))
		udp, err := net.Dial("udp", all[0].Address())
		if err != nil {
			t.Fatal(err)
		}
		label := append([]byte{244, byte(len("warmring"))}, "warmring"...)
		for i := range 3000 {
			b := make([]byte, 1+random.IntN(1400))
			for j := range b {
				b[j] = byte(random.Uint32())
			}
			switch i % 4 {
			case 1: // of our cluster, any type
				b = append(slices.Clone(label), b...)
			case 2: // a user message of ours
				m := append([]byte{8, version}, b...)
				b = append(slices.Clone(label), m...)
			case 3: // too large
				b = append(slices.Clone(label), make([]byte, 20_000)...)
			}
			_, _ = udp.Write(b)
		}
		_ = udp.Close()
		for i := range 30 {
			tcp, err := net.Dial("tcp", all[0].Address())
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1+random.IntN(5000))
			for j := range b {
				b[j] = byte(random.Uint32())
			}
			if i%2 == 0 {
				b = append(slices.Clone(label), b...)
			}
			_, _ = tcp.Write(b)
			_ = tcp.Close()
		}
		eventually(t, "garbage to be counted", func() bool { return all[0].View().Strangers > 20 })
		if after := all[0].book.Totals(); key != nil && after != before {
			t.Errorf("something was believed: %+v, then %+v", before, after)
		}
		d := all[1].place(t, 77)
		eventually(t, "news after the garbage", func() bool { return all[0].knows(77) == d.Engine })
		t.Logf("%d strangers counted, log of %d bytes", all[0].View().Strangers, len(all[0].log.String()))
		if n := len(all[0].log.String()); n > 100_000 {
			t.Errorf("strangers wrote %d bytes into the log", n)
		}
	}
}
