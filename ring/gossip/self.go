package gossip

import (
	"fmt"
	"math"
	"time"

	"github.com/warmring/warmring/ring"
)

// self is what this member knows by its configuration and tells the others. Never changed, only replaced.
type self struct {
	meta    meta
	engines map[uint32]string // names by id
}

func newSelf(opt *Options) *self {
	s := &self{engines: make(map[uint32]string, len(opt.Engines))}
	for _, name := range opt.Engines {
		s.engines[ring.EngineID(name)] = name
	}
	s.meta = meta{
		Oldest: version, Newest: version, Engines: uint16(min(len(opt.Engines), math.MaxUint16)), EnginesHash: hashNames(opt.Engines),
		Program: opt.Version, Traits: opt.Traits,
	}
	return s
}

// SetEngines replaces the list of engines and what goes with it, after a reload, and tells the others. Members of a list that differs cope. OnDrain is called for engines that are new in the list and that an operator has drained,
// whether that was said while they were in no list here, or before they were taken out of it.
func (c *Cluster) SetEngines(names []string, t Traits) error {
	opt := Options{Engines: names, Traits: t, Version: c.opt.Version}
	was := c.self.Swap(newSelf(&opt))
	for _, name := range names {
		if _, had := was.engines[ring.EngineID(name)]; !had {
			c.recallDrain(name)
		}
	}
	if err := c.list.UpdateNode(time.Second); err != nil {
		return fmt.Errorf("tell the cluster of another list of engines: %w", err)
	}
	return nil
}

// recallDrain acts upon what was said of an engine's drain before it was in the list, and once more if another word comes meanwhile: the
// last one counts.
func (c *Cluster) recallDrain(engine string) {
	for said := false; ; {
		drained, _ := c.Drained(engine)
		if drained == said {
			return
		}
		said = drained
		e := Entry{Key: uint64(ring.EngineID(engine)), Kind: Drain}
		if drained {
			e.Value = 1
		}
		c.hear(&e)
	}
}

func (c *Cluster) ownMeta() *meta { return &c.self.Load().meta }

// engineName is the name of an engine of ours.
func (c *Cluster) engineName(id uint32) (name string, ok bool) {
	name, ok = c.self.Load().engines[id]
	return name, ok
}
