package ring

import "github.com/warmring/warmring/ring/prompt"

// Whose turn is this? A turn has a session by the key that the client gave, or by its prompt: the session whose last prompt
// it extends. What comes under a known key but does not extend that session (a title, a recap, a sub-agent of a client that
// gives all of them one key, a compaction) is a side session: a session of its own, found again by its prompt and by its
// owner's key. When two turns in a row extend a side session while the owner stands still, that was a compaction: its
// history becomes the owner's. Where there are other proxies nobody sees all turns of the owner, and two that swap histories apart
// from each other would send both astray, so a compaction stays a side session there: all find it by its first message.

// resolved is the answer.
type resolved struct {
	session uint32 // slot; none = a new one
	key     uint64 // of the new one
	owner   uint64 // of a new side session
	ringKey uint64 // where the ring looks for a home
	extends bool
	tailed  bool // to be found by its prompt

	like     uint64 // key of a session that began alike and has had turns at other proxies: this may be a fork of it
	stays    bool   // it may be that session itself, for which another turn was taken
	anywhere bool   // there is nothing to hash: ringKey is arbitrary
}

// tail returns the point by which the next turn's prompt shows that it extends this one. A prompt of messages ends at a part
// boundary, which stays a point of every longer one. Raw text goes on behind its last point, so the one before counts.
func tail(pr *prompt.Prompt) prompt.Point {
	n := len(pr.Chain)
	if n > 1 && openEnded(pr) {
		return pr.Chain[n-2]
	}
	return pr.Chain[n-1]
}

func openEnded(pr *prompt.Prompt) bool {
	return pr.Family == prompt.Completions || pr.Family == prompt.None || pr.Fallback != ""
}

// contains tells whether a chain has the point at which a session's last prompt ended.
func contains(chain []prompt.Point, tail uint64, bytes uint32) bool {
	low, high := 0, len(chain)
	for low < high {
		mid := int(uint(low+high) / 2)
		if uint32(chain[mid].Bytes) < bytes {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(chain) && uint32(chain[low].Bytes) == bytes && chain[low].Fingerprint == tail
}

// tellingText is how long a raw text must have been for its points to show that another one extends it: they stand every
// 4,096 bytes, and behind the last one it goes on.
const tellingText = 4096

// tailWindow is how many points from its end a prompt is searched for the end of a known one. A turn adds a few.
const tailWindow = 256

func (p *Placer) resolve(t *Turn) resolved {
	if t.Session == 0 {
		return p.resolveByPrompt(t, 0)
	}
	i, key := p.scoped(t.Session, t.Seed)
	ringKey := join(t.Session, t.Seed)
	if p.share != nil && p.anotherHistory(t, i, key) {
		return p.resolveByPrompt(t, key)
	}
	if i == none && p.share != nil {
		i = p.meet(key, false, key, true, t)
	}
	if i == none {
		r := resolved{key: key, ringKey: ringKey}
		if p.share != nil && len(p.chain) > 0 {
			r.like = p.like(t, join(p.beginning(t), 0))
		}
		return r
	}
	s := p.sessions.all.at(i)
	if p.extends(t, s) {
		s.follow, s.followed = 0, 0
		return resolved{session: i, ringKey: ringKey, extends: true, tailed: !s.named}
	}
	r := p.resolveByPrompt(t, key)
	if r.session == none || !r.extends || len(t.Exclude) > 0 || p.share != nil {
		return r // other proxies may have turns of the owner's: nobody knows that it stands still
	}
	side := p.sessions.all.at(r.session)
	if s.follow != uint32(side.key) {
		s.follow, s.followed = uint32(side.key), 0
	}
	if s.followed++; s.followed < 2 {
		return r
	}
	p.adopt(i, r.session)
	return resolved{session: i, ringKey: ringKey, extends: true, tailed: !s.named}
}

// scoped finds the session of a key within a scope. Where two scopes use one key (the small model that writes titles for a large
// one's sessions), the one that came second is known under another.
func (p *Placer) scoped(key, seed uint64) (slot uint32, scopedKey uint64) {
	i := p.sessions.find(key)
	if i != none && p.sessions.all.at(i).scope != uint32(seed) {
		key = join(key, seed)
		i = p.sessions.find(key)
	}
	return i, key
}

// extends tells whether a turn under a session's key goes on where its last one ended. Clients touch up the end of their
// history (98 % of turns keep 98 % of it, but not always all), so most of it being warm on the session's engine,
// beyond what unrelated sessions share, is proof too.
func (p *Placer) extends(t *Turn, s *session) bool {
	if t.Continues || len(p.chain) == 0 {
		return true
	}
	if s.bytes == 0 {
		return !tooShort(t, s)
	}
	if contains(p.chain, s.tail, s.bytes) {
		return true
	}
	if openEnded(t.Prompt) && s.bytes < tellingText {
		return true // nothing to compare: the client's word counts
	}
	e := p.engineOf(s.engine)
	if e == nil {
		return false
	}
	depth := p.index.depth(p.kept, int(e.slot), len(p.kept))
	return depth > p.keptHead && 5*int64(p.kept[depth-1].Bytes) >= 4*int64(s.bytes)
}

// beginning is the fingerprint at the end of a prompt's first user message.
func (p *Placer) beginning(t *Turn) uint64 {
	return p.chain[min(max(t.Prompt.First, 1), len(p.chain))-1].Fingerprint
}

// resolveByPrompt finds the session that a prompt extends, among those without a key of their own or among the side sessions
// of owner.
func (p *Placer) resolveByPrompt(t *Turn, owner uint64) resolved {
	if len(p.chain) == 0 {
		p.sequence++
		return resolved{ringKey: join(p.sequence, 1), anywhere: true}
	}
	first := p.beginning(t)
	fresh := resolved{key: join(first, owner), owner: owner, ringKey: first, tailed: true}
	end := tail(t.Prompt)
	for n := len(p.chain) - 1; n >= max(t.Prompt.Head, len(p.chain)-tailWindow, 0); n-- {
		at := p.chain[n]
		i := p.sessions.findTail(at.Fingerprint, owner)
		if i == none {
			continue
		}
		s := p.sessions.all.at(i)
		if at.Bytes >= end.Bytes && s.inFlight > 0 && len(t.Exclude) == 0 {
			break // the same prompt is being answered: somebody else began alike
		}
		return resolved{session: i, ringKey: first, extends: true, tailed: true}
	}
	if p.share != nil {
		if i := p.meetByPrompt(t, &fresh); i != none {
			return resolved{session: i, ringKey: first, extends: true, tailed: true}
		}
		fresh.like = p.like(t, fresh.key)
		fresh.stays = p.mayBeMet(t, fresh.key)
	}
	for p.taken(fresh.key) {
		p.sequence++
		fresh.key = join(first, p.sequence)
	}
	return fresh
}

// adopt gives a session the history of a side session. The side session gets the old one in return: if this was no compaction but
// a sub-agent that is busier than the main one, the main one's next turn finds its history there.
func (p *Placer) adopt(owner, side uint32) {
	o, s := p.sessions.all.at(owner), p.sessions.all.at(side)
	p.seen(owner)
	p.seen(side)
	oldEngine, newEngine := p.engineOf(o.engine), p.engineOf(s.engine)
	oldContext, newContext := int(o.context), int(s.context)
	if newEngine != nil {
		p.bind(owner, newEngine)
	}
	if oldEngine != nil {
		p.bind(side, oldEngine)
	}
	p.setContext(owner, newContext)
	p.setContext(side, oldContext)
	tail, bytes := o.tail, o.bytes
	p.sessions.setTail(owner, s.tail, int(s.bytes), !o.named)
	p.sessions.setTail(side, tail, int(bytes), true)
	o.shared, s.shared = s.shared, o.shared
	o.cached, s.cached = s.cached, o.cached
	o.short, s.short = s.short, o.short
	o.head, s.head = s.head, o.head
	o.follow, o.followed = 0, 0
	p.totals.Adopted++
}
