package gossip

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmring/warmring/ring"
)

// The straight way: what is new or moved, and loads that changed much, go to every member at once.

const (
	gather  = 2 * time.Millisecond  // news that comes at once goes out at once, but in one packet
	retry   = 20 * time.Millisecond // loads that the budget did not allow are tried again so soon
	maxOwed = 1024                  // engines whose loads wait for that; the rest is told with the next report

	// keptForLoads is the share of what the straight way may spend at once that entries leave to loads. Entries go by gossip, too; loads
	// have no other way, and one that others believe in for longer than it lasts sends every fork elsewhere.
	keptForLoads = 2.0 / 3

	// quickSaved is how long the straight way may save. With the rest of the budget, that is less than what all of it allows in a second.
	quickSaved = 1500 * time.Millisecond
)

// flush sends the Placer's news: the first at once, as a session's next turn may be under way, then what gathers meanwhile.
func (c *Cluster) flush() {
	again := time.NewTimer(retry)
	defer again.Stop()
	for {
		select {
		case <-c.base.Done():
			return
		case <-c.wake:
		case <-again.C:
		}
		again.Stop() // what it was to do is done now
		if c.sendNews(c.now()) {
			again.Reset(retry)
		}
		if !sleep(c.base, gather) {
			return
		}
	}
}

// sendNews writes what the Placer has placed into the Book and sends what is urgent straight to every member. It tells whether loads wait
// to be tried again.
func (c *Cluster) sendNews(now int64) (again bool) {
	var urgent []Entry
	c.telling.Lock()
	bindings, loads, number := c.collect()
	for i := range bindings {
		e := c.write(now, entryOf(&bindings[i]))
		if bindings[i].Urgent {
			urgent = append(urgent, e)
		}
	}
	c.telling.Unlock()
	left := c.sendQuick(now, number, urgent, loads)
	if len(left) == 0 {
		return false
	}
	c.numbering.Lock()
	defer c.numbering.Unlock()
	c.owed = left[:min(len(left), maxOwed)]
	return true
}

// collect is what the Placer has to tell, with the loads that could not be told before as they are now, and their message's number.
func (c *Cluster) collect() (bindings []ring.Binding, loads []ring.Load, number uint64) {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	bindings, loads = c.opt.Placer.Collect(nil, nil)
	if len(c.owed) > 0 {
		charged := c.opt.Placer.Loads(nil)
		for _, owed := range c.owed {
			of := func(l ring.Load) bool { return l.Engine == owed.Engine }
			if slices.ContainsFunc(loads, of) {
				continue
			}
			now := ring.Load{Engine: owed.Engine}
			if i := slices.IndexFunc(charged, of); i >= 0 {
				now = charged[i]
			}
			loads = append(loads, now)
		}
		c.owed = nil
	}
	return bindings, loads, c.sequence.Add(1)
}

// sendQuick sends entries and loads to every member, as far as the budget for that goes. Entries that are left out go by gossip; loads
// that are, and could be told when something has been saved, are returned. number is that of the loads.
func (c *Cluster) sendQuick(now int64, number uint64, entries []Entry, loads []ring.Load) (left []ring.Load) {
	all := c.members.all()
	if len(all) == 0 {
		return nil
	}
	newestFirst(entries)
	for len(entries)+len(loads) > 0 {
		m := Message{Sender: c.node, Sequence: number}
		n := min(len(loads), maxPacket/2/loadSize)
		m.Loud = loads[:n]
		m.Direct = entries[:min(len(entries), (maxPacket-30-n*loadSize)/entrySize)]
		b := m.Append(nil)
		cost := len(all) * (len(b) + packetCost)
		if len(m.Direct) > 0 && (c.budget.available(now) < cost || !c.quick.takeAbove(now, cost, keptForLoads)) {
			c.counts.quickSkipped.Add(1)
			entries = nil
			continue // with loads alone
		}
		if len(m.Direct) == 0 && !c.quick.take(now, cost) {
			if !c.quick.everHas(cost) {
				c.counts.quickSkipped.Add(1)
				return nil // with the next report
			}
			return loads
		}
		entries, loads = entries[len(m.Direct):], loads[n:]
		c.budget.owe(now, cost)
		c.counts.quickSent.Add(1)
		start := rand.IntN(len(all)) // nobody is always the last to know
		for i := range all {
			_ = c.list.SendBestEffort(&all[(start+i)%len(all)].node, b)
		}
	}
	return nil
}
