package prompt

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Memory spares reading again what was read before. An agent repeats its whole history: the body of turn 20 begins with
// the bytes of turn 19 up to its last message, and mostly ends with the same tools. A Memory keeps, for recent bodies,
// what both passes knew at a message's end; a body that begins with the same bytes goes on from there. What a Prompt says
// is the same with a memory and without.
//
// Data structure: a body is hashed in blocks of 16 KiB, each seeded with the hash of those before. A memo is filed under
// the hash through its last whole block, in one of 128 sets of 8 with a lock each; in a full set the memo used
// longest ago goes. A body is looked up by its block hashes, the deepest first; then the bytes from there to the
// memo's end are hashed and compared. A false match takes a collision of seeded 64-bit hashes.
//
// Limits: 1,024 memos of maxMemo bytes each, 5 to 10 KB for most; bodies of leastBlocks and more; chains of fewer than densePoints;
// families with messages or items. A memo replaces the one it goes on from, so a session has one.
// A Memory is safe for concurrent use.
type Memory struct {
	seed  maphash.Seed
	block int // blockSize, less in tests
	sets  [memorySets]memorySet

	hits, misses, evicted, shed atomic.Uint64
}

// MemoryStats counts what became of bodies that are large enough for a Memory.
type MemoryStats struct {
	Hits, Misses uint64 // bodies whose beginning was known, and the others
	Evicted      uint64 // memos that made room for others
	Shed         uint64 // memos too large to be kept
}

const (
	blockSize   = 16 << 10
	leastBlocks = 2 // a smaller body is read in less time than a look-up is worth
	memorySets  = 128
	memoryWays  = 8
	maxMemo     = 64 << 10
)

type memorySet struct {
	mu    sync.Mutex
	clock uint64
	ways  [memoryWays]memo
}

// memo is what was known of a body at the end of one of its messages, and what followed behind the last one.
type memo struct {
	used   uint64 // the set's clock at the last use; 0 = free
	family Family
	block  uint64 // hash through the last whole block before end
	prefix uint64 // hash through end
	end    int    // behind the message
	tail   uint64 // hash of what follows the list of messages
	behind int    // where that begins
	length int    // of the body

	open              int
	entered, finished facts  // as known where the list of messages begins, and at the body's end
	tools, functions  []part // with those of the tail
	system, turns     []part
	cuts, tailCuts    []cut // up to end, and of the tail
	cutsBehind        int   // how many there were where the tail begins
	chain             []Point
	past              past
}

// past is how far pass 2 had come.
type past struct {
	scope       uint64 // the seed, salt included
	turns       int    // how many had been fed
	points      int
	head, first int
	bytes, kept int
	digest      xxhash.Digest
}

// NewMemory returns an empty memory. Its hashes are seeded anew: nobody can make bodies that collide.
func NewMemory() *Memory { return &Memory{seed: maphash.MakeSeed(), block: blockSize} }

// Stats returns the counts since the memory was made.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{m.hits.Load(), m.misses.Load(), m.evicted.Load(), m.shed.Load()}
}

// hash returns the hash of b behind what before is the hash of, 0 for nothing. The runtime's hash of strings takes b whole,
// with AES instructions where there are some: four times as fast as xxhash, and it need not be the same in another process.
func (m *Memory) hash(before uint64, b []byte) uint64 {
	h := maphash.Comparable(m.seed, unsafe.String(unsafe.SliceData(b), len(b)))
	return (bits.RotateLeft64(before, 29) ^ h) * 0x9e3779b97f4a7c15
}

// find looks for the memo with most of body's beginning, and puts into p what it says.
func (m *Memory) find(p *Prompt, body []byte) bool {
	blocks := p.trace.blocks
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		set := &m.sets[h%memorySets]
		set.mu.Lock()
		for w := range set.ways {
			e := &set.ways[w]
			if e.used == 0 || e.block != h || e.family != p.Family || e.end/m.block != i+1 || e.end >= len(body) ||
				m.hash(h, body[(i+1)*m.block:e.end]) != e.prefix {
				continue
			}
			set.clock++
			e.used = set.clock
			at := len(body) - (e.length - e.behind)
			same := at > e.end && m.hash(0, body[at:]) == e.tail
			p.restore(e, at, same)
			set.mu.Unlock()
			return true
		}
		set.mu.Unlock()
	}
	return false
}

// learn files what p knows of body, in place of the memo that its scan went on from. on tells that pass 2 went on from it, too.
func (m *Memory) learn(p *Prompt, body []byte, on bool) {
	t := &p.trace
	end := int(p.turns[t.keep-1].end)
	if on && t.tailed && end == t.end {
		return // the very same turn again
	}
	n := end / m.block
	block := t.blocks[n-1]
	prefix := m.hash(block, body[n*m.block:end])
	tail := t.tail
	if !t.tailed {
		tail = m.hash(0, body[t.behind:])
	}
	if t.known {
		m.forget(t.block, t.prefix)
	}
	cuts := p.cuts[:p.turns[t.keep-1].cutEnd]
	const partSize, cutSize, pointSize = 28, 8, 16
	if parts := len(p.tools) + len(p.functions) + len(p.system) + t.keep; parts*partSize+(len(cuts)+len(p.cuts)-t.cuts)*cutSize+t.past.points*pointSize > maxMemo {
		m.shed.Add(1)
		return
	}
	set := &m.sets[block%memorySets]
	set.mu.Lock()
	defer set.mu.Unlock()
	e := set.place(block, prefix)
	if e.used != 0 && (e.block != block || e.prefix != prefix) {
		m.evicted.Add(1)
	}
	set.clock++
	e.used, e.family = set.clock, p.Family
	e.block, e.prefix, e.end = block, prefix, end
	e.tail, e.behind, e.length = tail, t.behind, len(body)
	e.open, e.entered, e.finished = p.Open, t.entered, t.finished
	e.tools = append(e.tools[:0], p.tools...)
	e.functions = append(e.functions[:0], p.functions...)
	e.system = append(e.system[:0], p.system...)
	e.turns = append(e.turns[:0], p.turns[:t.keep]...)
	e.cuts = append(e.cuts[:0], cuts...)
	e.tailCuts = append(e.tailCuts[:0], p.cuts[t.cuts:]...)
	e.cutsBehind = t.cuts
	e.chain = append(e.chain[:0], p.Chain[:t.past.points]...)
	e.past = t.past
}

// forget frees the memo of that name.
func (m *Memory) forget(block, prefix uint64) {
	set := &m.sets[block%memorySets]
	set.mu.Lock()
	defer set.mu.Unlock()
	for w := range set.ways {
		if e := &set.ways[w]; e.block == block && e.prefix == prefix {
			e.used = 0
		}
	}
}

// place returns the memo of that name, else a free one, else the one used longest ago.
func (s *memorySet) place(block, prefix uint64) *memo {
	oldest := &s.ways[0]
	for w := range s.ways {
		e := &s.ways[w]
		if e.block == block && e.prefix == prefix {
			return e
		}
		if e.used < oldest.used {
			oldest = e
		}
	}
	return oldest
}
