package gossip

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// guard stands between the network and memberlist: it counts what passes and refuses packets of other clusters before anything
// looks into them.
type guard struct {
	memberlist.NodeAwareTransport
	label   string
	packets chan *memberlist.Packet
	streams chan net.Conn
	stop    chan struct{}
	done    sync.WaitGroup
	open    atomic.Int32
	counts  *traffic
}

// traffic counts bytes, those of headers that networks add included.
type traffic struct {
	packetsOut, bytesOut, packetsIn, bytesIn atomic.Uint64
	streamOut, streamIn                      atomic.Uint64 // bytes
	strangers, crowded                       atomic.Uint64 // packets of other clusters; streams beyond maxStreams
}

const (
	packetOverhead = 28 // IP and UDP
	maxStreams     = 16 // open at once
	// maxStream bounds what one stream may bring before memberlist has checked a word of it: a full state is 1.5 MB and
	// some 300 bytes for each member. Without it, whoever reaches the port could make it hold 20 MB a stream.
	maxStream = 4 << 20
)

func newGuard(inner memberlist.NodeAwareTransport, label string, counts *traffic) *guard {
	g := &guard{
		NodeAwareTransport: inner, label: label, counts: counts, stop: make(chan struct{}),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	g.done.Go(g.passPackets)
	g.done.Go(g.passStreams)
	return g
}

func (g *guard) passPackets() {
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			g.counts.packetsIn.Add(1)
			g.counts.bytesIn.Add(uint64(len(p.Buf) + packetOverhead))
			if _, label, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf); err != nil || label != g.label {
				g.counts.strangers.Add(1)
				continue
			}
			select {
			case g.packets <- p:
			case <-g.stop:
				return
			}
		case <-g.stop:
			return
		}
	}
}

func (g *guard) passStreams() {
	for {
		select {
		case c := <-g.NodeAwareTransport.StreamCh():
			if g.open.Load() >= maxStreams {
				g.counts.crowded.Add(1)
				_ = c.Close()
				continue
			}
			g.open.Add(1)
			select {
			case g.streams <- &countedConn{Conn: c, counts: g.counts, open: &g.open}:
			case <-g.stop:
				_ = c.Close()
				return
			}
		case <-g.stop:
			return
		}
	}
}

func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *guard) StreamCh() <-chan net.Conn           { return g.streams }

func (g *guard) WriteTo(b []byte, address string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: address})
}

func (g *guard) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	g.counts.packetsOut.Add(1)
	g.counts.bytesOut.Add(uint64(len(b) + packetOverhead))
	return g.NodeAwareTransport.WriteToAddress(b, a)
}

func (g *guard) DialTimeout(address string, limit time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: address}, limit)
}

func (g *guard) DialAddressTimeout(a memberlist.Address, limit time.Duration) (net.Conn, error) {
	c, err := g.NodeAwareTransport.DialAddressTimeout(a, limit)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: c, counts: g.counts}, nil
}

// Shutdown ends the inner transport first, whose listeners may be blocked on handing something over.
func (g *guard) Shutdown() error {
	drained := make(chan struct{})
	go func() { // whatever comes while it ends goes nowhere
		for {
			select {
			case <-g.NodeAwareTransport.PacketCh():
			case c := <-g.NodeAwareTransport.StreamCh():
				_ = c.Close()
			case <-drained:
				return
			}
		}
	}()
	close(g.stop)
	err := g.NodeAwareTransport.Shutdown()
	close(drained)
	g.done.Wait()
	return err
}

type countedConn struct {
	net.Conn
	counts *traffic
	open   *atomic.Int32 // nil for connections that we opened
	came   atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.streamIn.Add(uint64(n))
	if c.came.Add(int64(n)) > maxStream && c.open != nil {
		c.counts.strangers.Add(1)
		_ = c.Close()
		return 0, fmt.Errorf("stream brings more than %d bytes", maxStream)
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counts.streamOut.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) && c.open != nil {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

var _ memberlist.NodeAwareTransport = (*guard)(nil)
