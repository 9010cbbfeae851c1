package gossip

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// Where there are too many members to tell all of them at once, each hears as often as any other, and of what was read of engines, too.
func TestManyMembersAreToldInTurn(t *testing.T) {
	t.Parallel()
	p := startMember(t, engineNames(4), nil, nil)
	const n = 100
	heard := make([]atomic.Int32, n)
	told := make([]atomic.Int32, n) // of the engine that was read
	for i := range n {
		hole, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hole.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				size, err := hole.Read(b)
				if err != nil {
					return
				}
				body := b[2+len("warmring") : size]
				var m Message
				if len(body) > 6 && body[0] == typeCRC {
					body = body[5:]
				}
				if body[0] != typeUser || m.Read(body[1:]) != nil || !m.HasLoads {
					continue
				}
				heard[i].Add(1)
				if len(m.Digests) > 0 && m.Digests[0].Engine == ring.EngineID("e1") {
					told[i].Add(1)
				}
			}
		}()
		p.members.add(&memberlist.Node{Name: fmt.Sprint("other-", i), Addr: net.IPv4(127, 0, 0, 1), Port: uint16(hole.LocalAddr().(*net.UDPAddr).Port), Meta: p.ownMeta().bytes(), PMax: 5})
	}
	if pause := p.interval(30); pause <= heartbeat {
		t.Fatalf("%d members are told every %v: too few", n, pause)
	}
	p.Read("e1", Digest{Running: 3})
	eventually(t, "everybody to hear of the engine", func() bool {
		for i := range n {
			if told[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	eventually(t, "everybody to hear twice more", func() bool {
		least, most := int32(1<<30), int32(0)
		for i := range n {
			least, most = min(least, heard[i].Load()), max(most, heard[i].Load())
		}
		if most-least > 2 { // one by turns, and one that has not been counted yet
			t.Fatalf("one has heard %d times, another %d", least, most)
		}
		return least >= 4
	})
	p.members.mu.Lock()
	clear(p.members.byName)
	clear(p.members.byID)
	p.members.publish()
	p.members.mu.Unlock()
}
