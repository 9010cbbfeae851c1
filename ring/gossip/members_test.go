package gossip

import (
	"net"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// What a member has no more, after a reload there, is forgotten; what it told before outlives news about itself.
func TestWhatAMemberSeesIsReplacedAsAWhole(t *testing.T) {
	var m members
	m.init()
	node := &memberlist.Node{Name: "other", Addr: net.IPv4(127, 0, 0, 1), Port: 1}
	sees := func() map[uint32]ring.State {
		out := map[uint32]ring.State{}
		m.named("other").sights.Range(func(k, v any) bool { out[k.(uint32)] = v.(ring.State); return true })
		return out
	}
	m.add(node).see(1, []Sight{{1, ring.Ready}, {2, ring.Down}}, false)
	m.add(node) // it tells something new about itself
	if s := sees(); len(s) != 2 || s[2] != ring.Down {
		t.Errorf("after news about itself: %v", s)
	}
	m.named("other").see(2, []Sight{{1, ring.Draining}}, true)
	if s := sees(); s[1] != ring.Draining || s[2] != ring.Ready {
		t.Errorf("after exceptions: %v", s)
	}
	m.named("other").see(3, []Sight{{2, ring.Ready}, {3, ring.Ready}}, false)
	if s := sees(); len(s) != 2 || s[3] != ring.Ready {
		t.Errorf("after a whole list: %v", s)
	}
}

// A member whose list of engines is another one is known to have those alone that it tells of from then on: else the engines that it has no more
// are left to it to look after.
func TestAnotherListOfEnginesMakesWhatAMemberSawVoid(t *testing.T) {
	var m members
	m.init()
	node := func(engines ...string) *memberlist.Node {
		own := meta{Oldest: version, Newest: version, Engines: uint16(len(engines)), EnginesHash: hashNames(engines), Program: "test"}
		return &memberlist.Node{Name: "other", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: own.bytes()}
	}
	sees := func() (n int) {
		m.named("other").sights.Range(func(any, any) bool { n++; return true })
		return n
	}
	m.add(node("a", "b")).see(1, []Sight{{ring.EngineID("a"), ring.Ready}, {ring.EngineID("b"), ring.Ready}}, false)
	m.add(node("b", "a"))
	if n := sees(); n != 2 {
		t.Errorf("the same list in another order: %d engines of 2 are known", n)
	}
	m.add(node("a"))
	if n := sees(); n != 0 {
		t.Errorf("%d engines are believed to be there as before", n)
	}
	m.named("other").see(2, []Sight{{ring.EngineID("b"), ring.Down}}, true) // a report on its way since before, or one of what is down
	m.named("other").see(3, []Sight{{ring.EngineID("a"), ring.Ready}}, false)
	if n := sees(); n != 1 {
		t.Errorf("after a whole list there are %d engines of 1", n)
	}
}
