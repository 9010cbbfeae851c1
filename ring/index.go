package ring

import (
	"math"

	"github.com/warmring/warmring/ring/prompt"
)

// index is what the proxy believes the engines' caches hold. Per engine it imitates a prefix cache: a set of prefix
// segments with a capacity in tokens whose least recently used chains lose their tails first, as vLLM's do.
//
// A segment lies between two kept points of a chain and is one entry, found by (fingerprint, engine) and, as the list of all
// engines that hold it, by fingerprint. Entries that were only ever touched together form a run (the path of a compressed
// trie), and least-recently-used order is kept among runs: touching a chain costs the number of its runs, a handful, not
// of its points. Where a new chain leaves a run in its middle the run is split.
//
// Invariant: an engine that holds an entry holds all entries before it, because a run is never older than the runs that grow out
// of it. So the deepest point that an engine holds is found by bisection. Chains that break the rule (two prompts that keep
// different points of one prefix) cost accuracy only.
type index struct {
	entries slab[entry]
	runs    slab[run]
	pairs   table   // entries by (fingerprint, engine)
	heads   table   // of the entries with one fingerprint, the first of their list, by fingerprint
	caches  []cache // by engine slot

	tokens    int64 // in all caches
	maxTokens int64
	maxPoints int
	hand      int    // engine slot that pays for the common bound
	Evicted   uint64 // segments dropped because their engine's capacity was reached: the imitation at work
	Shed      uint64 // segments dropped because of maxTokens or maxPoints: the proxy's own bound
}

// entry is one prefix segment in one engine's cache. 40 bytes.
type entry struct {
	fingerprint uint64
	run         uint32
	before      uint32 // the entry one step nearer to the beginning of the prompt, in this run or at the end of its parent
	same        uint32 // next entry with this fingerprint, of another engine
	back        uint32 // previous entry with this fingerprint; in the first of the list: listHead | length of the list
	nextPair    uint32
	nextHead    uint32
	engine      uint16
	tokens      uint16 // of the segment, at most 65,535
}

const listHead = 1 << 31

// run is a stretch of entries of one engine that were last used together.
type run struct {
	used         int64  // time of the last use
	last         uint32 // its deepest entry
	parent       uint32 // the run whose last entry comes before this one's first
	children     uint32
	newer, older uint32
	engine       uint16
}

// cache is the imitation of one engine's.
type cache struct {
	newest, oldest uint32
	tokens         int64
	capacity       int64
	points         int
}

func (x *index) init(maxTokens int64) {
	x.maxTokens = maxTokens
	x.maxPoints = int(min(max(maxTokens/tokensPerPoint, 1024), math.MaxUint32/2))
	x.pairs = newTable(
		func(i uint32) uint64 { e := x.entries.at(i); return pairHash(e.fingerprint, e.engine) },
		func(i uint32) *uint32 { return &x.entries.at(i).nextPair })
	x.heads = newTable(
		func(i uint32) uint64 { return mix(x.entries.at(i).fingerprint) },
		func(i uint32) *uint32 { return &x.entries.at(i).nextHead })
}

// tokensPerPoint turns the bound in tokens into one in points, so that many short prompts cannot take more memory than
// 100 bytes per 1,000 tokens of the bound.
const tokensPerPoint = 500

func pairHash(fingerprint uint64, engine uint16) uint64 {
	return mix(fingerprint + uint64(engine)*0x9e3779b97f4a7c15)
}

// find returns the entry of a fingerprint in an engine's cache.
func (x *index) find(fingerprint uint64, engine uint16) uint32 {
	for i := x.pairs.first(pairHash(fingerprint, engine)); i != none; {
		e := x.entries.at(i)
		if e.fingerprint == fingerprint && e.engine == engine {
			return i
		}
		i = e.nextPair
	}
	return none
}

// holders returns the first entry of the list of all that have this fingerprint.
func (x *index) holders(fingerprint uint64) uint32 {
	for i := x.heads.first(mix(fingerprint)); i != none; {
		e := x.entries.at(i)
		if e.fingerprint == fingerprint {
			return i
		}
		i = e.nextHead
	}
	return none
}

// copies is how many engines hold a fingerprint.
func (x *index) copies(fingerprint uint64) int {
	if i := x.holders(fingerprint); i != none {
		return int(x.entries.at(i).back &^ listHead)
	}
	return 0
}

// anyone asks depth for the deepest point that any engine holds.
const anyone = -1

func (x *index) has(fingerprint uint64, engine int) bool {
	if engine == anyone {
		return x.holders(fingerprint) != none
	}
	return x.find(fingerprint, uint16(engine)) != none
}

// depth is how many leading kept points an engine (or anyone) holds. It searches outwards from a guess: one or two
// look-ups when the guess is right, O(log of the distance) when it is not.
func (x *index) depth(kept []prompt.Point, engine, guess int) int {
	n := len(kept)
	guess = min(max(guess, 0), n)
	low, high := 0, n // held below low, not held from high on
	if guess > 0 && x.has(kept[guess-1].Fingerprint, engine) {
		low = guess
		for step := 1; low < n; step *= 2 {
			at := min(low+step, n)
			if !x.has(kept[at-1].Fingerprint, engine) {
				high = at - 1
				break
			}
			low = at
		}
	} else if guess > 0 {
		high = guess - 1
		for step := 1; high > 0; step *= 2 {
			at := max(high-step, 0)
			if at == 0 || x.has(kept[at-1].Fingerprint, engine) {
				low = at
				break
			}
			high = at - 1
		}
	}
	for low < high {
		mid := int(uint(low+high+1) / 2)
		if x.has(kept[mid-1].Fingerprint, engine) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// touch records that an engine computes a chain: its first depth kept points are there (see depth), the others come now.
// It returns how many points were added and when the held part had been used last.
func (x *index) touch(engine uint16, kept []prompt.Point, depth int, now int64, bytesPerToken float64) (added int, before int64) {
	r, last := uint32(none), uint32(none)
	if depth > 0 {
		last = x.find(kept[depth-1].Fingerprint, engine)
		r = x.endingAt(last)
		before = x.runs.at(r).used
	}
	tokens := 0
	if depth > 0 {
		tokens = int(float64(kept[depth-1].Bytes) / bytesPerToken)
	}
	for _, p := range kept[depth:] {
		through := int(float64(p.Bytes) / bytesPerToken)
		segment := through - tokens
		tokens = through
		if i := x.find(p.Fingerprint, engine); i != none {
			x.refresh(r, now)
			last = i
			r = x.endingAt(i)
			continue
		}
		if r == none || x.runs.at(r).children > 0 {
			r = x.addRun(engine, r, now)
		}
		last = x.addEntry(engine, p.Fingerprint, r, last, segment)
		x.runs.at(r).last = last
		added++
	}
	x.refresh(r, now)
	x.shrink(engine)
	return added, before
}

// endingAt returns the run whose last entry is i, splitting the run of i when it goes on behind it.
func (x *index) endingAt(i uint32) uint32 {
	r := x.entries.at(i).run
	lower := x.runs.at(r)
	if lower.last == i {
		return r
	}
	u := x.runs.take()
	upper := x.runs.at(u)
	*upper = run{used: lower.used, last: i, parent: lower.parent, children: 1, engine: lower.engine, older: r, newer: lower.newer}
	c := &x.caches[lower.engine]
	if lower.newer != none {
		x.runs.at(lower.newer).older = u
	} else {
		c.newest = u
	}
	lower.newer, lower.parent = u, u
	for ; i != none && x.entries.at(i).run == r; i = x.entries.at(i).before {
		x.entries.at(i).run = u
	}
	return u
}

func (x *index) addRun(engine uint16, parent uint32, now int64) uint32 {
	r := x.runs.take()
	*x.runs.at(r) = run{used: now, parent: parent, engine: engine}
	x.pushNewest(r)
	if parent != none {
		x.runs.at(parent).children++
	}
	return r
}

func (x *index) addEntry(engine uint16, fingerprint uint64, r, before uint32, tokens int) uint32 {
	i := x.entries.take()
	e := x.entries.at(i)
	*e = entry{fingerprint: fingerprint, run: r, before: before, engine: engine, tokens: uint16(min(max(tokens, 0), math.MaxUint16))}
	x.pairs.insert(i)
	if h := x.holders(fingerprint); h == none {
		e.back = listHead | 1
		x.heads.insert(i)
	} else { // behind the first, which need not be found again in its bucket
		first := x.entries.at(h)
		e.back, e.same = h, first.same
		if first.same != none {
			x.entries.at(first.same).back = i
		}
		first.same = i
		first.back++
	}
	c := &x.caches[engine]
	c.tokens += int64(e.tokens)
	c.points++
	x.tokens += int64(e.tokens)
	return i
}

// dropTail forgets the deepest entry of a run that nothing grows out of, and the run with its last entry.
func (x *index) dropTail(r uint32) {
	run := x.runs.at(r)
	i := run.last
	e := x.entries.at(i)
	c := &x.caches[e.engine]
	c.tokens -= int64(e.tokens)
	c.points--
	x.tokens -= int64(e.tokens)

	x.pairs.remove(i)
	switch {
	case e.back&listHead == 0:
		before := x.entries.at(e.back)
		before.same = e.same
		if e.same != none {
			x.entries.at(e.same).back = e.back
		}
		x.entries.at(x.holders(e.fingerprint)).back--
	case e.same != none:
		x.entries.at(e.same).back = e.back - 1
		x.heads.replace(i, e.same)
	default:
		x.heads.remove(i)
	}
	before := e.before
	x.entries.give(i)
	if before != none && x.entries.at(before).run == r {
		run.last = before
		return
	}
	if run.parent != none {
		x.runs.at(run.parent).children--
	}
	x.unlink(r)
	x.runs.give(r)
}

// undo takes back what touch added when the engine never got the request, unless something has grown on it since. Entries
// that begin before the last tokens of the prompt stay.
func (x *index) undo(engine uint16, deepest uint64, added, tokens int) {
	for i := x.find(deepest, engine); added > 0 && i != none; added-- {
		r := x.entries.at(i).run
		if tokens -= int(x.entries.at(i).tokens); tokens < 0 {
			return
		}
		if run := x.runs.at(r); run.last != i || run.children > 0 {
			return
		}
		i = x.entries.at(i).before
		x.dropTail(r)
	}
}
