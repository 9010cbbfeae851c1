package gossip

import (
	"cmp"
	"slices"
	"time"

	"github.com/warmring/warmring/ring"
)

const (
	report         = 250 * time.Millisecond
	heartbeat      = 500 * time.Millisecond // loads are told so often though they are the same
	longestPause   = 10 * time.Second       // between reports to one member; where there are more members than that allows, reports are shorter
	shortestReport = 120                    // bytes: with some hundreds of members more, the pauses become longer after all
	reportShare    = 0.30                   // of the budget
)

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
	limit := c.reportLimit(len(all))
	m := c.report(last, limit)
	number := m.Sequence
	m.Sequence = 0 // no part of what is compared
	content := string(m.Append(nil))
	m.Sequence = number
	room, untold := max(limit-len(content), 0)/digestSize, c.digests.untold()
	pause := c.interval(len(content) + min(untold, room)*digestSize)
	if pause > heartbeat && !last {
		m.Interval, m.Digests = pause+report, c.digests.recent(now, c.node, pause+2*report, room)
		r.due += float64(len(all)) * float64(report) / float64(max(pause, c.interval(len(m.Append(nil)))))
		for ; r.due >= 1; r.due-- {
			r.next = (r.next + 1) % len(all)
			c.tell(now, all[r.next:r.next+1], m)
		}
		return
	}
	since := now - r.at
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

// reportLimit is how long a report to so many members may be: a packet, and no more than can be told to all of them in the longest pause.
func (c *Cluster) reportLimit(members int) int {
	bytes := float64(c.opt.Budget) * reportShare * longestPause.Seconds()
	return min(max(int(bytes)/members-packetCost, shortestReport), maxPacket-20)
}

// interval is how often so many bytes can be told to all members within their share of the budget.
func (c *Cluster) interval(bytes int) time.Duration {
	perSecond := float64(c.opt.Budget) * reportShare
	return max(time.Duration(float64(c.members.count()*(bytes+packetCost))/perSecond*float64(time.Second)), report)
}

// report is the part of it that does not change for as long as nothing happens. Of loads that would not fit the heaviest are told, and
// the rest counts as unknown.
func (c *Cluster) report(last bool, limit int) *Message {
	m := &Message{Sender: c.node, HasLoads: true}
	for _, s := range c.states() {
		if s.State != ring.Ready && s.State != ring.Busy {
			m.Sights = append(m.Sights, Sight{ring.EngineID(s.Engine), s.State})
		}
	}
	m.Sights = m.Sights[:min(len(m.Sights), limit/4/5)]
	if m.Loads, m.Sequence = c.numberedLoads(); last {
		m.Loads = nil
	}
	for over := len(m.Append(nil)) - limit; over > 0 && len(m.Loads) > 0; over = len(m.Append(nil)) - limit {
		slices.SortFunc(m.Loads, func(a, b ring.Load) int { return cmp.Compare(b.Waiting, a.Waiting) })
		m.Loads = m.Loads[:len(m.Loads)-min((over+loadSize-1)/loadSize, len(m.Loads))]
	}
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
