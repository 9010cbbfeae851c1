package gossip

import "time"

// A member that leaves says so itself: the member list tells its users that somebody is gone, but not whether by its own will.
// The word is an entry, so it goes straight to every member and by gossip, and one that missed both finds it by comparison.

const (
	goodbyeLife = time.Minute // it is of use only until all have noticed

	// lostAfter is how long one that is gone may still turn out to have left: its word may be behind the news of its end.
	lostAfter = time.Second
)

// sayGoodbye tells all members that this one leaves.
func (c *Cluster) sayGoodbye() {
	now := c.now()
	e := c.write(now, Entry{Key: uint64(c.node), Kind: Goodbye, Life: goodbyeLife})
	c.sendQuick(now, c.sequence.Add(1), []Entry{e}, nil)
}

// left counts a member that is gone and has said so.
func (c *Cluster) left(name string) {
	c.counts.left.Add(1)
	c.opt.Log.Info("cluster member left", "member", name)
}

// judge counts the members that went without a word.
func (c *Cluster) judge(now time.Time) {
	for _, name := range c.members.lostNow(now) {
		c.counts.lost.Add(1)
		c.opt.Log.Warn("cluster member lost", "member", name)
	}
}

// goodbye notes that a member leaves. left: it was gone already and not yet told as lost, so it is to be told as left.
func (m *members) goodbye(id uint32) (name string, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mem := m.byID[id]; mem != nil {
		mem.leaving = true
		return mem.node.Name, false
	}
	for address, l := range m.lost {
		if l.id == id {
			delete(m.lost, address)
			return l.name, !l.told
		}
	}
	return "", false
}

// lostNow are the names of those that are to be told as lost now.
func (m *members) lostNow(now time.Time) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lost {
		if !l.told && now.Sub(l.since) >= lostAfter {
			l.told = true
			names = append(names, l.name)
		}
	}
	return names
}
