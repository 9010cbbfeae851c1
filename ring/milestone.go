package ring

import (
	"math/bits"

	"github.com/warmring/warmring/ring/prompt"
)

// A session that is told by its key says nothing of its prompt, so that a fork under a key of its own, at another proxy, would not
// be found to share it. Milestones say it: a few points of the prompt, each told once with the engine that holds everything up
// to it. Where they stand follows from the prompt alone, so two prompts have the milestones of all that they share in common, and
// a turn is looked up in some ten steps, however long it is.
//
// They are the end of the first user message, and behind it the last kept points within 2, 4, 8, 16, ... KB behind the head, in
// canonical bytes. The head has none: it is shared by sessions that have nothing else in common. A session tells one whenever it has
// doubled, about as often as it tells its size; a tail told with every turn would cost ten times as much on the wire.

const (
	milestoneReach = 2048 // canonical bytes behind the head within which the first stands
	firstMilestone = 1024 // bytes of a first user message from which on its end is one
	maxMilestones  = 24   // of one prompt, of 4 GB
	newMilestones  = 1    // besides the end of the first message, told with the first turn that a session has here: what others have told of it is not repeated
)

// milestoneShift makes milestones worth less than sessions where something has to be shed: they are told as this much shorter
// (4,096 times), which keeps their order. What they vouch for is read off the prompt that contains them.
const milestoneShift = 12

// milestoneKey keeps milestones apart from the tails of sessions.
func milestoneKey(fingerprint uint64) uint64 { return join(fingerprint, 0x6d696c6573746f6e) }

// milestoneLevel is the greatest level whose reach lies within so many bytes behind the head; -1 if none does.
func milestoneLevel(beyond int) int { return bits.Len(uint(max(beyond, 0)/milestoneReach)) - 1 }

// reachOf is how many bytes behind the head a level reaches.
func reachOf(level int) int { return milestoneReach << level }

// milestones goes through those of a prompt, the deepest first.
type milestones struct {
	pr    *prompt.Prompt
	head  int // bytes of it
	level int // the next one to look at
	at    int // point of the last one; each stands for all levels that end there
	first bool
}

func milestonesOf(pr *prompt.Prompt) milestones {
	m := milestones{pr: pr, at: len(pr.Chain), level: -1}
	if m.at == 0 {
		return m
	}
	if pr.Head > 0 {
		m.head = int(pr.Chain[pr.Head-1].Bytes)
	}
	m.level = milestoneLevel(int(tail(pr).Bytes) - m.head)
	m.first = pr.First > pr.Head && pr.First <= m.at && int(pr.Chain[pr.First-1].Bytes)-m.head >= firstMilestone
	return m
}

// next returns the next milestone as an index into the chain and its level (-1 = the end of the first message); false after
// the last.
func (m *milestones) next() (at, level int, ok bool) {
	for ; m.level >= 0; m.level-- {
		if at := m.find(m.level); at >= max(m.pr.First, m.pr.Head) && at < m.at {
			level := m.level
			m.level--
			m.at = at
			return at, level, true
		}
	}
	if m.first {
		m.first = false
		return m.pr.First - 1, -1, true
	}
	return 0, 0, false
}

// find is the point of a level, less than the head's number of points if there is none.
func (m *milestones) find(level int) int {
	chain, limit := m.pr.Chain, m.head+reachOf(level)
	low, high := m.pr.Head, len(chain)
	for low < high {
		mid := int(uint(low+high) / 2)
		if int(chain[mid].Bytes) <= limit {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for low--; low >= m.pr.Head && !chain[low].Keep; low-- {
	}
	return low
}

// tellMilestones tells those that a turn has brought: levels that its session has reached since its last turn here, or, with
// its first one, points that no engine was known to hold. renew tells the deepest once more, as the session has moved or the news of it has become old.
func (p *Placer) tellMilestones(l *look, ch *Charge, s *session, moved, renew bool) {
	if len(p.chain) == 0 || l.t.Continues {
		return
	}
	m := milestonesOf(l.t.Prompt)
	from := m.level - newMilestones
	if l.had > 0 {
		from = milestoneLevel(int(l.had) - m.head)
	}
	if m.level <= from && !moved && !renew {
		return
	}
	known := int32(0) // bytes
	if l.deepest > 0 {
		known = p.kept[l.deepest-1].Bytes
	}
	id := EngineID(ch.e.Name)
	for again := moved || renew; ; again = false {
		at, level, ok := m.next()
		if !ok {
			return
		}
		if level >= 0 && level <= from && !again {
			if l.had > 0 {
				return // told before, like all that come next
			}
			continue // of a new session: the end of its first message is still to come
		}
		if level < 0 && (l.had > 0 || !s.named && s.key == join(l.t.Prompt.Chain[at].Fingerprint, 0)) && !again {
			return // told before, or told as the session's own key
		}
		point := l.t.Prompt.Chain[at]
		if l.had == 0 && point.Bytes <= known && !again {
			return // somebody else's
		}
		p.tellMilestone(point, ch, id, moved)
	}
}

func (p *Placer) tellMilestone(point prompt.Point, ch *Charge, id uint32, moved bool) {
	key := milestoneKey(point.Fingerprint)
	if i := p.share.away.find(key, true); i != none {
		if s := p.share.away.all.at(i); s.until > p.now && (!moved || s.engine == ch.e.ref()) {
			return // others have said so
		}
	}
	p.tellBinding(Binding{
		Key: key, Engine: id, Tokens: max(1, ch.m.tokens(int(point.Bytes))>>milestoneShift), Life: p.opt.SessionIdle, Tail: true,
		Urgent: moved, // the old one speaks against the move; a fork of a new session gives gossip the time that its parent takes
	})
}

// followMilestones finds the engine that others have told to hold most of a turn's prompt, where that is more than the index knows of
// any engine.
func (p *Placer) followMilestones(l *look) {
	if len(p.chain) == 0 {
		return
	}
	known := int32(0)
	if l.deepest > 0 {
		known = p.kept[l.deepest-1].Bytes
	}
	var at [maxMilestones]int32
	var perhaps [maxMilestones]bool
	n := 0
	for m := milestonesOf(l.t.Prompt); n < maxMilestones; n++ {
		i, _, ok := m.next()
		if !ok || p.chain[i].Bytes <= known {
			break
		}
		at[n] = int32(i)
	}
	for i, point := range at[:n] { // each waits for memory: together they wait once
		perhaps[i] = p.share.away.filter.perhaps(mix(milestoneKey(p.chain[point].Fingerprint)))
	}
	for i, point := range at[:n] {
		if !perhaps[i] {
			continue
		}
		s := p.share.away.alive(milestoneKey(p.chain[point].Fingerprint), true, p.now)
		if s == nil {
			continue
		}
		if e := p.engineOf(s.engine); l.usable(e) && s.seen >= e.coldSince {
			l.expect(e, min(l.m.tokens(int(p.chain[point].Bytes)), l.tokens))
			return
		}
	}
}

// knowsSome tells whether something of a prompt behind its head is known to be warm somewhere.
func (p *Placer) knowsSome(pr *prompt.Prompt) bool {
	for m := milestonesOf(pr); ; {
		at, _, ok := m.next()
		if !ok {
			return false
		}
		fingerprint := pr.Chain[at].Fingerprint
		if p.index.holders(fingerprint) != none || p.share.away.alive(milestoneKey(fingerprint), true, p.now) != nil {
			return true
		}
	}
}
