package gossip

import (
	"time"

	"github.com/warmring/warmring/ring"
)

// hintLife is how long a hint is remembered, so as not to be told again.
const hintLife = 30 * time.Second

// Drain tells all members that an operator drained an engine, or put it back.
func (c *Cluster) Drain(engine string, drained bool) {
	e := Entry{Key: uint64(ring.EngineID(engine)), Kind: Drain, Life: maxLife}
	if drained {
		e.Value = 1
	}
	e = c.write(c.now(), e)
	c.sendQuick(c.now(), c.sequence.Add(1), []Entry{e}, nil)
}

// Drained tells what was last said of an engine's drain; known is false if nobody said anything.
func (c *Cluster) Drained(engine string) (drained, known bool) {
	e, ok := c.book.Get(c.now(), uint64(ring.EngineID(engine)), Drain)
	return e.Value == 1, ok
}

// Saw tells the members that an engine went down (ring.Down), came back (ring.Ready) or was restarted (ring.Unknown), so that
// they look at it. What others have told lately is not told again.
func (c *Cluster) Saw(engine string, state ring.State) {
	key, now := uint64(ring.EngineID(engine)), c.now()
	if e, ok := c.book.Get(now, key, Hint); ok && e.Value == uint32(state) && e.Life > hintLife-10*time.Second {
		return
	}
	e := c.write(now, Entry{Key: key, Kind: Hint, Value: uint32(state), Life: hintLife})
	c.sendQuick(now, c.sequence.Add(1), []Entry{e}, nil)
}
