package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/warmring/warmring/ring"
)

const (
	maxPacket  = 1200 // bytes of a message that goes by packet, so that it fits one with all that is around it
	maxReply   = 600  // entries per comparison: 16 KB
	compareFor = 3 * time.Second
)

// send sends one message to one member, by packet.
func (c *Cluster) send(now int64, to *member, m *Message) {
	b := m.Append(nil)
	c.budget.owe(now, len(b)+packetCost)
	_ = c.list.SendBestEffort(&to.node, b)
}

// tend does what is due regularly.
func (c *Cluster) tend() {
	ticker := time.NewTicker(report)
	defer ticker.Stop()
	var nextSweep, nextRefresh int64
	tick := 0
	for {
		select {
		case <-c.base.Done():
			return
		case <-ticker.C:
		}
		now := c.now()
		c.sendLoads(now, false)
		c.charged(func() []ring.Load { return c.loads.age(now) })
		c.judge(time.Now())
		if tick++; tick%2 == 0 && now < c.compareUntil.Load() {
			if all := c.members.all(); len(all) > 0 {
				select {
				case c.replies <- reply{to: all[rand.IntN(len(all))].id}:
				default:
				}
			}
		}
		if now >= nextSweep {
			nextSweep = now + int64(5*time.Second)
			c.book.Sweep(now)
		}
		if now >= nextRefresh {
			nextRefresh = now + int64(time.Hour)
			c.refreshDrains(now)
		}
	}
}

// refreshDrains writes the operators' words anew before they end; one member does it for each engine.
func (c *Cluster) refreshDrains(now int64) {
	for id, name := range c.self.Load().engines {
		if e, ok := c.book.Get(now, uint64(id), Drain); ok && e.Value == 1 && e.Life < maxLife/2 && c.Owner(name) {
			c.Drain(name, true)
		}
	}
}

func (c *Cluster) states() []EngineState {
	if c.opt.EngineStates == nil {
		return nil
	}
	return c.opt.EngineStates()
}

// replyLoop sends what comparisons found missing elsewhere.
func (c *Cluster) replyLoop() {
	for {
		select {
		case <-c.base.Done():
			return
		case r := <-c.replies:
			to := c.members.find(r.to)
			now := c.now()
			if to == nil {
				continue
			}
			if c.budget.indebted(now) {
				c.counts.repliesSkipped.Add(1) // the next comparison finds the same
				continue
			}
			m := Message{Sender: c.node, Sequence: c.sequence.Add(1)}
			if r.hashes == nil {
				m.Hashes = c.book.Hashes()
			} else if m.Reply = c.book.Differing(now, r.hashes, maxReply); len(m.Reply) == 0 {
				continue
			}
			b := m.Append(nil)
			c.budget.owe(now, len(b)+packetCost)
			_ = c.list.SendReliable(&to.node, b)
		}
	}
}

// Preempt asks another member to let a turn of ours by on an engine where a prefill of its own is in the way. request is the turn's number, the
// same when it asks again. done is called once, from another goroutine, with the answer, or with NoAnswer after 80 ms; it must not block.
// An unknown member is an answer, too. Preempt itself does not wait for anything.
func (c *Cluster) Preempt(member, engine string, request uint64, done func(Answer)) {
	c.ask(member, Ask{Engine: ring.EngineID(engine), Request: request}, true, done)
}

// PreemptAgain says that a turn for which Preempt asked still waits. Without it the other member counts it for a second only.
func (c *Cluster) PreemptAgain(member, engine string, request uint64) {
	c.ask(member, Ask{Engine: ring.EngineID(engine), Request: request}, false, nil)
}

// PreemptOver says that a turn for which Preempt asked waits no more.
func (c *Cluster) PreemptOver(member, engine string, request uint64) {
	ask := Ask{Engine: ring.EngineID(engine), Request: request, Over: true}
	c.asks.withdraw(member, ask)
	c.ask(member, ask, false, nil)
}

func (c *Cluster) ask(member string, ask Ask, first bool, done func(Answer)) {
	now := c.now()
	ask.ID = rand.Uint64() | 1
	to := c.members.named(member)
	if to == nil || !c.asks.open(now, member, ask, first, done) {
		if done != nil {
			done(NoAnswer)
		}
		return
	}
	c.send(now, to, &Message{Sender: c.node, Sequence: c.sequence.Add(1), Ask: ask})
	select {
	case c.askWake <- struct{}{}:
	default:
	}
}

// Waiter is a member with fresh tokens that wait on an engine.
type Waiter struct {
	Member string
	Tokens int64
}

// maxWaiters bounds how many members are named.
const maxWaiters = 8

// Waiters are the members with more than so many fresh tokens waiting on an engine, as each has told last: 8 at most, those with the
// most of them first. It allocates only if there are any.
func (c *Cluster) Waiters(engine string, above int64) []Waiter {
	var list []Waiter
	for _, w := range c.loads.waiters(ring.EngineID(engine), above) {
		if m := c.members.find(w.member); m != nil {
			list = append(list, Waiter{m.node.Name, w.tokens})
		}
	}
	return list
}

// askLoop sends open requests again.
func (c *Cluster) askLoop() {
	for {
		select {
		case <-c.base.Done():
			c.asks.due(1<<62, func(string, Ask) {})
			return
		case <-c.askWake:
		}
		for c.asks.pending() {
			if !sleep(c.base, askAgain/2) {
				break
			}
			now := c.now()
			c.asks.due(now, func(name string, ask Ask) {
				if to := c.members.named(name); to != nil {
					c.send(now, to, &Message{Sender: c.node, Sequence: c.sequence.Add(1), Ask: ask})
				}
			})
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
