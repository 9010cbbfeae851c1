package gossip

import (
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// delegate is what memberlist calls: on its own goroutines, which must not be held up.
type delegate Cluster

func (d *delegate) NodeMeta(limit int) []byte {
	b := (*Cluster)(d).ownMeta().bytes()
	return b[:min(len(b), limit)]
}

// NotifyMsg takes a message from any member. The buffer is the library's.
func (d *delegate) NotifyMsg(b []byte) {
	select {
	case d.inbox <- slices.Clone(b):
	default:
		d.counts.inboxFull.Add(1)
	}
}

// GetBroadcasts gives one message of news for a packet to one member.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	const head = 1 + 5
	room := limit - overhead - head
	if room < entrySize {
		return nil
	}
	c := (*Cluster)(d)
	now := c.now()
	room = min(room, c.budget.available(now)-packetCost)
	if room < entrySize {
		return nil
	}
	var m Message
	c.news.take(room/entrySize, c.times(), func(id id) bool {
		if e, ok := c.book.Get(now, id.key, id.kind); ok {
			m.Entries = append(m.Entries, e)
		}
		return true
	})
	if len(m.Entries) == 0 {
		return nil
	}
	b := m.Append(make([]byte, 0, head+len(m.Entries)*entrySize))
	c.budget.owe(now, len(b)+packetCost)
	return [][]byte{b}
}

// packetCost is what a packet costs beyond its message: headers of IP, UDP, label, checksum and encryption.
const packetCost = 80

// times is how often each member sends an entry on: enough that one missing is rare, less than the library's own default, as
// comparing finds what is missing. In small clusters there is a floor: the library asks for each member in turn, so of a burst
// that fills packets each member gets another part, and an entry may go to the same one again and again.
func (c *Cluster) times() int {
	digits := 0
	for n := c.members.count() + 1; n > 0; n /= 10 {
		digits++
	}
	return max(3*digits+1, 8)
}

// LocalState is what goes to a member that joins, and to one to be compared with.
func (d *delegate) LocalState(join bool) []byte {
	c := (*Cluster)(d)
	now := c.now()
	m := Message{Sender: c.node, Interval: c.interval(0), HasLoads: true, Readiness: Joining}
	if c.isReady.Load() {
		m.Readiness = Settled
	}
	m.Loads, m.Sequence = c.numberedLoads()
	for _, s := range c.states() {
		m.Sights = append(m.Sights, Sight{ring.EngineID(s.Engine), s.State})
	}
	m.Speeds = c.opt.Placer.Speeds(nil)
	if join {
		m.Digests = c.digests.all(now)
		m.Entries = c.book.All(now, maxState)
	} else {
		m.Hashes = c.book.Hashes()
	}
	c.counts.states.Add(1)
	return m.Append(nil)
}

// maxState is how many entries a joiner is sent: 1.4 MB.
const maxState = 50_000

// MergeRemoteState takes in another member's. It is done when it returns, so a join that has returned has the state.
func (d *delegate) MergeRemoteState(b []byte, join bool) {
	c := (*Cluster)(d)
	var m Message
	if !c.read(&m, b) {
		if join && len(b) > 0 && b[0] != version {
			c.settled.Store(true) // asking it again, or another of its version, gives no more
		}
		return
	}
	now := c.now()
	// What a joiner learns is known to the others; what comes over a healed cut is not.
	spread := noSpread
	if c.isReady.Load() {
		spread = relay
	}
	c.merge(now, m.Entries, spread)
	c.take(now, &m, true)
	if join && m.Readiness != Joining { // only joins bring entries
		c.settled.Store(true)
	}
}

// events follows the membership.
type events Cluster

func (v *events) NotifyJoin(n *memberlist.Node) {
	if n.Name == v.name {
		return
	}
	m, own := v.members.add(n), (*Cluster)(v).ownMeta()
	v.lonely.ended()
	v.compareUntil.Store(v.opt.Now() + int64(compareFor))
	v.opt.Log.Info("cluster member joined", "member", n.Name, "address", m.address(), "program", m.meta.Program)
	if m.strange {
		v.opt.Log.Warn("cluster member of another version: what it tells about itself cannot be read", "member", n.Name)
		return
	}
	for _, difference := range own.differences(&m.meta) {
		v.opt.Log.Warn("cluster member differs; see /api/cluster", "member", n.Name, "difference", difference)
	}
}

func (v *events) NotifyLeave(n *memberlist.Node) {
	if n.Name == v.name {
		return
	}
	id, left := v.members.remove(n, time.Now())
	(*Cluster)(v).charged(func() []ring.Load { return v.loads.forget(id) })
	if left {
		(*Cluster)(v).left(n.Name)
	} // else judge tells in a moment
}

func (v *events) NotifyUpdate(n *memberlist.Node) {
	if n.Name != v.name {
		v.members.add(n)
	}
}

// pings learns the round-trip times that probing measures anyway.
type pings Cluster

func (p *pings) AckPayload() []byte { return nil }

func (p *pings) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, _ []byte) {
	if m := p.members.named(n.Name); m != nil {
		m.rtt.Store(int64(rtt))
	}
}

var (
	_ memberlist.Delegate      = (*delegate)(nil)
	_ memberlist.EventDelegate = (*events)(nil)
	_ memberlist.PingDelegate  = (*pings)(nil)
)
