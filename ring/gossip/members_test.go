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
