package gossip

import "github.com/warmring/warmring/ring"

// weight orders the members for an engine: the one with the greatest looks after it, the next takes over (rendezvous hashing), so that
// a member that goes leaves its engines evenly to the others and no other engine changes hands.
func weight(engine, member uint32) uint64 {
	h := uint64(engine)<<32 | uint64(member)
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	h ^= h >> 31
	return h // a bijection: two members never have the same
}

// Turn is how many members come before this one in looking after an engine (reading its pages for all); 0 = it is this one's. It counts
// those that have it in their lists and were heard of lately, so it is the same order for all members that hear of each other.
func (c *Cluster) Turn(engine string) (before int) {
	now, id := c.now(), ring.EngineID(engine)
	own := weight(id, c.node)
	for _, m := range c.members.all() {
		if weight(id, m.id) > own && c.has(m, id) && !c.loads.silent(now, m.id) {
			before++
		}
	}
	return before
}

// Owner tells whether this member is the one to look after an engine.
func (c *Cluster) Owner(engine string) bool { return c.Turn(engine) == 0 }

// has tells whether a member has an engine in its list, as far as it is known.
func (c *Cluster) has(m *member, engine uint32) bool {
	if m.meta.EnginesHash == c.ownMeta().EnginesHash && !m.strange {
		return true
	}
	_, ok := m.sights.Load(engine)
	return ok
}
