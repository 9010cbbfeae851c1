package gossip

import (
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
	secret  bool // members have keys
	packets chan *memberlist.Packet
	streams chan net.Conn
	stop    chan struct{}
	done    sync.WaitGroup
	places  places
	counts  *traffic
}

// traffic counts bytes, those of headers that networks add included.
type traffic struct {
	packetsOut, bytesOut, packetsIn, bytesIn atomic.Uint64
	streamOut, streamIn                      atomic.Uint64 // bytes
	strangers, crowded                       atomic.Uint64 // packets of other clusters; streams cut for want of places
}

// cut ends a stream whose place another gets, if there is one.
func (t *traffic) cut(c *countedConn) {
	if c != nil {
		t.crowded.Add(1)
		_ = c.Close()
	}
}

const (
	packetOverhead = 28 // IP and UDP
	// maxStream bounds what one stream may bring, and announce, before memberlist has checked a word of it: a full state is 1.5 MB and
	// some 300 bytes for each member. So strangers make it hold 64 MB at most, for as long as a stream may take.
	maxStream = 4 << 20
)

func newGuard(inner memberlist.NodeAwareTransport, label string, secret bool, counts *traffic) *guard {
	g := &guard{
		NodeAwareTransport: inner, label: label, secret: secret, counts: counts, stop: make(chan struct{}),
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
			if b, label, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf); err != nil || label != g.label || !g.secret && !packetShape(b, 0) {
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
			counted := &countedConn{Conn: c, counts: g.counts, places: &g.places, source: sourceOf(c.RemoteAddr()), secret: g.secret}
			g.counts.cut(g.places.enter(counted))
			select {
			case g.streams <- counted:
			case <-g.stop:
				_ = counted.Close()
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

var _ memberlist.NodeAwareTransport = (*guard)(nil)
