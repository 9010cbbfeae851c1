package cluster

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e/ports"
)

// network lies between the proxies of a fleet: each tells the others an address of it as its own. It loses, delays, repeats and cuts
// what they say, packets and streams alike.
type network struct {
	f     *fleet
	gates []*gate
	work  sync.WaitGroup
	over  chan struct{}
	pids  sync.Map // process id, as text → number of its proxy

	mu      sync.Mutex
	faults  faults
	streams map[net.Conn]bool
	counts  struct{ passed, lost, cut int }
}

// faults are what the network does to what passes. The zero value does nothing.
type faults struct {
	loss  float64                 // share of packets that are lost; pieces of streams come 0.2 s later, as they are sent again
	twice float64                 // share of packets that come twice
	delay time.Duration           // up to so long, each packet by itself, so that they overtake each other
	cut   func(from, to int) bool // whom one proxy does not reach; nil = nobody
}

// gate is the address of one proxy for the others.
type gate struct {
	to  int
	udp *net.UDPConn
	tcp net.Listener
}

// between puts a network between the proxies of a fleet that is not started yet.
func (f *fleet) between() *network {
	f.t.Helper()
	if runtime.GOOS != "linux" {
		f.t.Skip("who opened a stream is looked up in /proc")
	}
	n := &network{f: f, over: make(chan struct{}), streams: map[net.Conn]bool{}}
	f.net = n
	f.t.Cleanup(n.end)
	for i := range f.proxies {
		port, err := ports.Free()
		if err != nil {
			f.t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		udp, err := net.ListenPacket("udp", address)
		if err != nil {
			f.t.Fatal(err)
		}
		g := &gate{to: i, udp: udp.(*net.UDPConn)}
		n.gates = append(n.gates, g)
		if g.tcp, err = net.Listen("tcp", address); err != nil {
			f.t.Fatal(err)
		}
		f.join[i] = address
		f.extra[i] += fmt.Sprintf("advertise = %q\n", address)
		n.work.Go(func() { n.packets(g) })
		n.work.Go(func() { n.accept(g) })
	}
	return n
}

func (n *network) end() {
	close(n.over)
	for _, g := range n.gates {
		_ = g.udp.Close()
		if g.tcp != nil {
			_ = g.tcp.Close()
		}
	}
	n.mu.Lock()
	for c := range n.streams {
		_ = c.Close()
	}
	n.mu.Unlock()
	n.work.Wait()
}

// set changes what the network does.
func (n *network) set(change faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = change
}

// split is a cut between the proxies below a number and the others.
func split(at int) faults {
	return faults{cut: func(from, to int) bool { return from < at != (to < at) }}
}

// packets passes them to one proxy. Who sent one is told by its port.
func (n *network) packets(g *gate) {
	target := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n.f.ports[g.to]}
	from := map[int]int{}
	for i, port := range n.f.ports {
		from[port] = i
	}
	buffer := make([]byte, 64<<10)
	for {
		size, sender, err := g.udp.ReadFromUDP(buffer)
		if err != nil {
			select {
			case <-n.over:
				return
			default: // the target refused the last one: it is not there
				continue
			}
		}
		times, delay := n.fate(from[sender.Port], g.to)
		for range times {
			if delay == 0 {
				_, _ = g.udp.WriteToUDP(buffer[:size], target)
				continue
			}
			packet := bytes.Clone(buffer[:size])
			n.work.Go(func() {
				if n.pause(delay) {
					_, _ = g.udp.WriteToUDP(packet, target)
				}
			})
		}
	}
}

// fate is how often a packet arrives, and how late.
func (n *network) fate(from, to int) (times int, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.faults
	if f.delay > 0 {
		delay = rand.N(f.delay)
	}
	switch {
	case f.cut != nil && f.cut(from, to):
		n.counts.cut++
		return 0, 0
	case rand.Float64() < f.loss:
		n.counts.lost++
		return 0, 0
	case rand.Float64() < f.twice:
		times = 1
	}
	n.counts.passed++
	return times + 1, delay
}

func (n *network) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-n.over:
		return false
	}
}

func (n *network) tell(t *testing.T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("the network passed %d packets, lost %d and cut off %d", n.counts.passed, n.counts.lost, n.counts.cut)
}
