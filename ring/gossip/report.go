package gossip

import "github.com/warmring/warmring/ring"

// sendLoads tells the members what is charged here, which engines are not ready, and what was read of engines. Where the budget allows it at
// once, all of them hear the same; where there are too many for that, some hear it with each tick, so that each does once in the
// pause and nothing comes in a burst.
func (c *Cluster) sendLoads(now int64, last bool) {
	all := c.members.all()
	if len(all) == 0 {
		return
	}
	r := &c.members.reported
	r.Lock()
	defer r.Unlock()
	m := c.report(last)
	number := m.Sequence
	m.Sequence = 0 // no part of what is compared
	content := string(m.Append(nil))
	m.Sequence = number
	pause := c.interval(len(content))
	room := max(maxPacket-len(content)-20, 0) / digestSize
	if pause > heartbeat && !last {
		n := min((len(all)*int(report)+int(pause)-1)/int(pause), len(all))
		m.Interval, m.Digests = pause+report, c.digests.recent(now, c.node, pause+report, room)
		for range n {
			r.next = (r.next + 1) % len(all)
			c.tell(now, all[r.next:r.next+1], m)
		}
		return
	}
	since, untold := now-r.at, c.digests.untold()
	if !last && r.at != 0 && (since < int64(pause-report/2) || untold == 0 && content == r.content && since < int64(heartbeat-report/2)) {
		return
	}
	r.at, r.content = now, content
	m.Interval, m.Digests = max(heartbeat, pause), c.digests.due(now, room)
	c.tell(now, all, m)
	if len(m.Digests) < untold {
		c.sendDigests(now, all)
	}
}

// report is the part of it that does not change for as long as nothing happens.
func (c *Cluster) report(last bool) *Message {
	m := &Message{Sender: c.node, HasLoads: true}
	for _, s := range c.states() {
		if s.State != ring.Ready && s.State != ring.Busy {
			m.Sights = append(m.Sights, Sight{ring.EngineID(s.Engine), s.State})
		}
	}
	if m.Loads, m.Sequence = c.numberedLoads(); last {
		m.Loads = nil
	}
	m.Loads = m.Loads[:min(len(m.Loads), maxPacket*3/4/loadSize)] // more would not fit; the rest counts as unknown
	m.Sights = m.Sights[:min(len(m.Sights), maxPacket/4/5)]
	return m
}

// numberedLoads is what is charged here, and the number of the message that tells it.
func (c *Cluster) numberedLoads() ([]ring.Load, uint64) {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	return c.opt.Placer.Loads(nil), c.sequence.Add(1)
}

// tell sends one numbered message to some members, by packet.
func (c *Cluster) tell(now int64, to []*member, m *Message) {
	b := m.Append(nil)
	c.budget.owe(now, len(to)*(len(b)+packetCost))
	for _, mem := range to {
		_ = c.list.SendBestEffort(&mem.node, b)
	}
}
