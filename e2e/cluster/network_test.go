package cluster

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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

func (n *network) accept(g *gate) {
	for {
		in, err := g.tcp.Accept()
		if err != nil {
			return
		}
		n.work.Go(func() { n.stream(g, in) })
	}
}

// stream passes one to a proxy. One that meets a cut gets no answer until that is over, or its opener gives up.
func (n *network) stream(g *gate, in net.Conn) {
	defer in.Close()
	from, err := n.opener(in)
	if err != nil { // it has written what it had to say and is gone: nobody knows who it was
		from = anyone
	}
	n.mu.Lock()
	n.streams[in] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.streams, in)
		n.mu.Unlock()
	}()
	if !n.passable(from, g.to) {
		return
	}
	out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.f.ports[g.to]))
	if err != nil {
		return
	}
	defer out.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		n.pipe(in, out, from, g.to)
		_ = in.Close() // who answers last ends it
	}()
	n.pipe(out, in, from, g.to)
	_ = out.(*net.TCPConn).CloseWrite()
	<-back
}

const (
	anyone  = -1
	givesUp = 10 * time.Second // who opens a stream, when nobody answers
)

// passable waits for the end of a cut. A stream needs both directions.
func (n *network) passable(a, b int) bool {
	for began := time.Now(); time.Since(began) < givesUp; {
		n.mu.Lock()
		cut := n.faults.cut
		n.mu.Unlock()
		if cut == nil || a != anyone && !cut(a, b) && !cut(b, a) {
			return true
		}
		if !n.pause(20 * time.Millisecond) {
			return false
		}
	}
	return false
}

// pipe copies piece by piece, late where packets are late or lost.
func (n *network) pipe(to io.Writer, from io.Reader, a, b int) {
	buffer := make([]byte, 16<<10)
	for {
		size, err := from.Read(buffer)
		n.mu.Lock()
		f := n.faults
		n.mu.Unlock()
		wait := time.Duration(0)
		if f.delay > 0 {
			wait = rand.N(f.delay)
		}
		if rand.Float64() < f.loss {
			wait += 200 * time.Millisecond
		}
		if size == 0 || wait > 0 && !n.pause(wait) || !n.passable(a, b) {
			return
		}
		if _, bad := to.Write(buffer[:size]); bad != nil || err != nil {
			return
		}
	}
}

// opener is the proxy that opened a stream: the kernel knows whose socket has that port.
func (n *network) opener(c net.Conn) (int, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	local := fmt.Sprintf("0100007F:%04X", c.RemoteAddr().(*net.TCPAddr).Port)
	remote := fmt.Sprintf("0100007F:%04X", c.LocalAddr().(*net.TCPAddr).Port)
	for line := range strings.Lines(string(table)) {
		if field := strings.Fields(line); len(field) > 9 && field[1] == local && field[2] == remote {
			return n.owner("socket:[" + field[9] + "]")
		}
	}
	return 0, fmt.Errorf("no socket at %v", c.RemoteAddr())
}

// owner is the proxy that has a socket open; one is known by its configuration's file, so those that are just starting are found, too.
func (n *network) owner(socket string) (int, error) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range list {
		pid := entry.Name()
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		i, known := n.pids.Load(pid)
		if !known {
			i = n.index(pid)
			if i != -2 {
				n.pids.Store(pid, i)
			}
		}
		if i.(int) < 0 {
			continue
		}
		links, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			continue
		}
		for _, link := range links {
			if to, _ := os.Readlink("/proc/" + pid + "/fd/" + link.Name()); to == socket {
				return i.(int), nil
			}
		}
	}
	return 0, fmt.Errorf("nobody has %s", socket)
}

// index is which proxy a process is: -1 none, -2 not known yet, as it has not become its program.
func (n *network) index(pid string) int {
	command, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || bytes.HasPrefix(command, []byte(os.Args[0]+"\x00")) {
		return -2
	}
	_, own, _ := strings.Cut(string(command), "\x00"+filepath.Join(n.f.logs, "proxy-"))
	number, _, _ := strings.Cut(own, "-")
	if i, err := strconv.Atoi(number); err == nil {
		return i
	}
	return -1
}

func (n *network) tell(t *testing.T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("the network passed %d packets, lost %d and cut off %d", n.counts.passed, n.counts.lost, n.counts.cut)
}
