package gossip

import (
	"errors"
	"slices"

	"github.com/warmring/warmring/ring"
)

// receive reads messages off the inbox.
func (c *Cluster) receive() {
	var m Message
	for {
		select {
		case <-c.base.Done():
			return
		case b := <-c.inbox:
			if !c.read(&m, b) {
				continue
			}
			now := c.now()
			c.merge(now, m.Entries, relay)
			c.merge(now, m.Direct, relayLess)
			c.merge(now, m.Reply, noSpread)
			c.take(now, &m, false)
		}
	}
}

func (c *Cluster) read(m *Message, b []byte) bool {
	c.counts.received.Add(1)
	switch err := m.Read(b); {
	case errors.Is(err, ErrVersion):
		c.counts.versions.Add(1)
		return false
	case err != nil:
		c.counts.garbled.Add(1)
		return false
	}
	return m.Sender != c.node
}

// spread is what becomes of news.
type spread uint8

const (
	relay     spread = iota // it came by gossip and goes on like that
	relayLess               // its writer sent it to every member: few have missed it
	noSpread                // only this member was missing it
)

// importBatch bounds how long the Placer is kept from placing: 256 bindings take about 0.1 ms.
const importBatch = 256

// merge takes entries in, tells the Placer what is news and passes it on.
func (c *Cluster) merge(now int64, list []Entry, how spread) {
	var words []Entry // for others than the Placer: told without the lock
	c.telling.Lock()
	var bindings []ring.Binding
	for i := range list {
		e := &list[i]
		if !c.book.Merge(now, *e) {
			continue
		}
		switch how {
		case relay:
			c.news.add(e, true, 0)
		case relayLess:
			c.news.add(e, true, max(c.times()-2, 0))
		}
		switch e.Kind {
		case Session, Tail:
			bindings = append(bindings, e.binding())
			c.active.Store(now)
		default:
			words = append(words, *e)
		}
		if len(bindings) == importBatch {
			c.importBindings(now, bindings)
			bindings = bindings[:0]
		}
	}
	c.importBindings(now, bindings)
	c.telling.Unlock()
	for i := range words {
		c.hear(&words[i])
	}
}

// hear acts upon an entry that is not about a session.
func (c *Cluster) hear(e *Entry) {
	switch e.Kind {
	case Goodbye:
		if name, left := c.members.goodbye(uint32(e.Key)); left {
			c.left(name)
		}
	case Drain:
		if name, ok := c.engineName(uint32(e.Key)); ok && c.opt.OnDrain != nil {
			c.counts.drains.Add(1)
			c.opt.OnDrain(name, e.Value == 1)
		}
	case Hint:
		if name, ok := c.engineName(uint32(e.Key)); ok && c.opt.OnHint != nil {
			c.counts.hints.Add(1)
			c.opt.OnHint(name, ring.State(e.Value))
		}
	}
}

func (c *Cluster) importBindings(now int64, bindings []ring.Binding) {
	if len(bindings) > 0 {
		c.counts.imported.Add(uint64(len(bindings)))
		c.opt.Placer.Import(now, bindings)
	}
}

// take handles what is in a message besides entries. state: it is a whole one.
func (c *Cluster) take(now int64, m *Message, state bool) {
	if m.Sender == 0 {
		return
	}
	from := c.members.find(m.Sender)
	if len(m.Hashes) > 0 {
		c.counts.compared.Add(1)
		select {
		case c.replies <- reply{m.Sender, slices.Clone(m.Hashes)}: // the next message is read into the same memory
		default: // the next comparison finds the same
		}
	}
	if len(m.Loads)+len(m.Loud) > 0 {
		c.active.Store(now)
	}
	if m.HasLoads || len(m.Loud) > 0 {
		c.charged(func() []ring.Load { return c.loads.take(now, m) })
	}
	if from != nil && (m.HasLoads || state) {
		from.see(now, m.Sights, !state)
	}
	if len(m.Speeds) > 0 {
		c.opt.Placer.HearSpeeds(m.Speeds)
	}
	c.hearDigests(now, m.Digests)
	if m.Ask.ID != 0 && from != nil {
		answer := c.asks.asked(m.Ask, func(ask Ask) Answer { return c.preempt(m.Sender, ask) })
		c.send(now, from, &Message{Sender: c.node, Sequence: c.sequence.Add(1), AnswerID: m.Ask.ID, Answer: answer})
	}
	if m.AnswerID != 0 {
		c.asks.answer(m.AnswerID, m.Answer)
	}
}

// charged gives the Placer new sums of what others have charged.
func (c *Cluster) charged(sums func() []ring.Load) {
	c.summing.Lock()
	defer c.summing.Unlock()
	if list := sums(); len(list) > 0 {
		c.opt.Placer.SetRemote(list)
	}
}

func (c *Cluster) preempt(sender uint32, ask Ask) Answer {
	name, ok := c.engineName(ask.Engine)
	if !ok || c.opt.OnPreempt == nil {
		return Refused
	}
	return c.opt.OnPreempt(name, turnOf(sender, ask.Request), ask.Over)
}

// turnOf tells the turns of different members apart.
func turnOf(sender uint32, request uint64) uint64 {
	return weight(sender, uint32(request>>32)) ^ request
}
