package ring

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Several proxies in front of one fleet agree by the ring alone on where a key is at home, and tell each other the rest: where
// sessions were placed and how much each of them has charged. A Placer that shares collects what the others should know, and
// takes in what they told. It does not know how that travels; alone, it pays one nil check.

// Binding is a recorded placement of a session as it travels between proxies.
type Binding struct {
	Key    uint64        // of the session; of a tail binding the fingerprint at which its last prompt ended, or a milestone's key
	Engine uint32        // EngineID of the engine's name
	Tokens int           // context that it keeps there
	Life   time.Duration // what is left until it is forgotten
	Tail   bool          // Key comes from a prompt: the way to a session that cannot be told by its beginning, or a milestone
	Home   bool          // the ring says the same: news of little worth
	Urgent bool          // new or moved: its next turn may reach another proxy at once
}

// Load is what a proxy has charged to an engine.
type Load struct {
	Engine  uint32 // EngineID
	Waiting int64  // fresh tokens of requests without a first token
	Queued  int    // these requests
	Running int    // requests that decode
}

// EngineID is how an engine is named between proxies: 32 bits of its name's hash, never 0. Two engines of one fleet with the
// same id (one fleet in 500 of 4,096 engines has such a pair) are told apart by nobody: bindings to them are ignored.
func EngineID(name string) uint32 {
	h := xxhash.Sum64String(name)
	return max(uint32(h>>32)^uint32(h), 1)
}

// What is told when.
const (
	maxUntold  = 4096             // bindings and engines that wait to be collected; beyond them news is dropped and counted
	tailLife   = 10 * time.Minute // tails change with every turn: old ones must go soon
	loudTokens = 2048             // a charge of so many fresh tokens is told at once, and its end, smaller ones with the next regular report
	growth     = 3                // quarters of a doubling: a session's context is told again when it has grown by so much
)

// told notes in a session when it was last told of and how large it was: the top bit says that others told of it since its last
// turn here, seven bits are the size class, and 24 bits the time in units of 4 s. 0 = never.
type told uint32

func toldAt(now int64, size uint8, byOthers bool) told {
	t := told(size&0x7f)<<24 | told(max(now, 0)/4e9+1)&0xffffff
	if byOthers {
		t |= 1 << 31
	}
	return t
}

func (t told) byOthers() bool { return t>>31 != 0 }
func (t told) size() uint8    { return uint8(t>>24) & 0x7f }
func (t told) at() int64      { return (int64(t&0xffffff) - 1) * 4e9 }

// sharing is the part of a Placer that shares.
type sharing struct {
	wake    func()
	woken   bool // wake was called and nobody has collected since
	untold  []Binding
	pending map[bindingID]int // where each stands among the untold
	loud    []uint16          // slots whose charges should be told at once
	shed    uint64            // news dropped because nobody collected it in time

	layout *layout // for which ids holds
	ids    map[uint32]*engine

	away away
}

// Share makes the Placer tell and take in. salt must differ between proxies: it keeps their keys for sessions that begin alike
// apart. wake is called when there is something to collect where there was nothing; the Placer's lock is held, so it must
// neither block nor call back. Call Share once, before the first Place.
func (p *Placer) Share(salt uint64, wake func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sequence = mix(salt)
	p.share = &sharing{wake: wake, pending: map[bindingID]int{}}
	p.share.away.init()
}

// Collect appends the bindings to be told and the loads to be told at once, and forgets them.
func (p *Placer) Collect(bindings []Binding, loads []Load) ([]Binding, []Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.share
	if s == nil {
		return bindings, loads
	}
	bindings = append(bindings, s.untold...)
	for _, slot := range s.loud {
		if e := p.engines[slot]; e != nil {
			e.loud = false
			loads = append(loads, e.load())
		}
	}
	s.forgetPending()
	s.untold, s.loud, s.woken = s.untold[:0], s.loud[:0], false
	return bindings, loads
}

// Untold is how many bindings wait to be collected.
func (p *Placer) Untold() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == nil {
		return 0
	}
	return len(p.share.untold)
}

// Loads appends what this proxy has charged, for every engine with a charge.
func (p *Placer) Loads(loads []Load) []Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.engines {
		if e != nil && e.inFlight() > 0 {
			loads = append(loads, e.load())
		}
	}
	return loads
}

func (e *engine) load() Load {
	return Load{Engine: EngineID(e.Name), Waiting: e.waiting, Queued: e.queued, Running: e.running}
}

// tell notes what others should hear of a turn that was just charged.
func (p *Placer) tell(l *look, d *Decision, ch *Charge, r resolved) {
	p.tellLoad(ch)
	if ch.session != none {
		p.tellSession(l, d, ch, r)
	}
}

// tellLoad tells at once that a long prefill has begun, or that it is done: a load that others believe in for longer than it lasts
// keeps forks from their parent's engine, and each that goes elsewhere is the next such load.
func (p *Placer) tellLoad(ch *Charge) {
	if ch.fresh >= loudTokens && !ch.e.loud && p.engines[ch.e.slot] == ch.e && len(p.share.loud) < maxUntold {
		ch.e.loud = true
		p.share.loud = append(p.share.loud, ch.e.slot)
		p.share.rouse()
	}
}

// rouse wakes the collector, once until it has collected. Whatever adds news calls it: news that waits for other news to be
// noticed would silence this proxy for good.
func (s *sharing) rouse() {
	if !s.woken && s.wake != nil {
		s.woken = true
		s.wake()
	}
}

func (p *Placer) tellSession(l *look, d *Decision, ch *Charge, r resolved) {
	s := p.sessions.all.at(ch.session)
	size := SizeClass(int(s.context) + int(s.shared))
	b := Binding{Key: s.key, Engine: EngineID(ch.e.Name), Tokens: int(s.context) + int(s.shared), Life: p.toldLife(), Home: d.Home == d.Engine}
	b.Urgent = r.session == none || d.Reason == Moved || d.Reason == Failover
	moved := r.session != none && l.lived != ch.e.ref()
	b.Urgent = b.Urgent || moved
	due := s.told != 0 && p.now-s.told.at() >= int64(p.renewal())
	if b.Urgent || s.told == 0 || due || size >= s.told.size()+growth {
		s.told = toldAt(p.now, size, false)
		if !p.tellBinding(b) {
			s.told = 0 // with its next turn
		}
	}
	s.told &^= 1 << 31 // what others told of it before this turn is outdated: the index knows
	p.tellMilestones(l, ch, s, moved, due)
	if s.named || len(p.chain) == 0 {
		return
	}
	owner := uint64(0)
	if s.side {
		owner = s.parent
	}
	if s.key != join(r.ringKey, owner) { // it began like another: only its end tells which it is
		p.tellBinding(Binding{Key: s.tail, Engine: b.Engine, Tokens: b.Tokens, Life: min(tailLife, p.opt.SessionIdle), Tail: true, Home: b.Home, Urgent: true})
	}
}

// renewal is after how long a session that has turns is told again though nothing has changed.
func (p *Placer) renewal() time.Duration { return min(p.opt.SessionIdle, p.opt.Active) / 2 }

// toldLife is how long others remember a session: as long after its last turn as it is remembered here, which may come up to a
// renewal after the last news of it.
func (p *Placer) toldLife() time.Duration { return p.opt.SessionIdle + p.renewal() }

// bindingID is what a binding replaces others of.
type bindingID struct {
	key  uint64
	tail bool
}

// tellBinding adds news, in the place of older news of the same. It returns false if there was no room.
func (p *Placer) tellBinding(b Binding) bool {
	s := p.share
	n := bindingID{b.Key, b.Tail}
	if i := p.share.away.find(b.Key, b.Tail); i != none {
		p.dropAway(i) // outdated
	}
	if at, ok := s.pending[n]; ok {
		old := &s.untold[at]
		b.Urgent = b.Urgent || old.Urgent
		*old = b
		return true
	}
	if len(s.untold) >= maxUntold {
		s.shed++
		return false
	}
	s.pending[n] = len(s.untold)
	s.untold = append(s.untold, b)
	s.rouse()
	return true
}

// forgetPending empties the names of what waits to be collected. Clearing a map costs what it once held.
func (s *sharing) forgetPending() {
	if len(s.untold) > 256 {
		clear(s.pending)
		return
	}
	for i := range s.untold {
		delete(s.pending, bindingID{s.untold[i].Key, s.untold[i].Tail})
	}
}

// SizeClass is a number of tokens in quarters of a doubling, at most 127; 0 = none.
func SizeClass(tokens int) uint8 {
	if tokens <= 0 {
		return 0
	}
	tokens = min(tokens, 1<<31-1)
	n := bits.Len32(uint32(tokens))
	fraction := uint32(tokens) << (32 - n) >> 29 & 3 // the two bits behind the first
	return uint8(4*(n-1)) + uint8(fraction) + 1
}

// ClassTokens is the least number of tokens of a size class.
func ClassTokens(class uint8) int {
	if class == 0 {
		return 0
	}
	n := min(int(class-1), 123)
	return (4 + n%4) << (n / 4) >> 2
}

// engineByID returns the engine of an id, nil if there is none or more than one.
func (p *Placer) engineByID(id uint32) *engine {
	s := p.share
	if s.layout != p.layout {
		s.layout, s.ids = p.layout, make(map[uint32]*engine, len(p.byName))
		for name, e := range p.byName {
			id := EngineID(name)
			if _, twice := s.ids[id]; twice {
				e = nil
			}
			s.ids[id] = e
		}
	}
	return s.ids[id]
}
