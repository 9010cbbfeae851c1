package gossip

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"
)

const (
	buckets = 512 // parts that are compared by hash: 2 KB per comparison, and a 512th of all entries to send for one that is missing

	// grace is how long an entry is remembered after its end. Copies of it may live a little longer elsewhere, by as long as
	// they were under way; without the memory of it they would be news again, and again.
	grace = 30 * time.Second

	maxLife = 30 * 24 * time.Hour
)

// Book is a bounded last-writer-wins map with expiry. Merging is commutative, associative and idempotent: books that have seen the
// same entries, in any order and number, hold the same. It is safe for concurrent use; time comes in as an argument, in
// nanoseconds of any clock that does not go back.
type Book struct {
	node uint32
	max  int

	mu      sync.Mutex
	entries map[id]kept
	hashes  [buckets]uint64 // sum over the entries of each bucket
	totals  BookTotals
}

// kept is an entry with its end on our clock; its Life is meaningless.
type kept struct {
	Entry
	until int64
}

// BookTotals counts since the start.
type BookTotals struct {
	Written uint64 `json:"written"` // own entries
	Merged  uint64 `json:"merged"`  // entries of others that changed something
	Known   uint64 `json:"known"`   // entries of others that did not
	Expired uint64 `json:"expired"`
	Shed    uint64 `json:"shed"` // entries dropped or refused because of the bound, those of least worth first
}

// NewBook makes an empty Book that writes as node and holds up to max entries.
func NewBook(node uint32, max int) *Book {
	return &Book{node: node, max: max, entries: make(map[id]kept)}
}

// Write adds an own entry as the newest of its id and returns it as it is to be told. wall is the wall clock in seconds: it makes
// entries written after a restart, with nothing remembered, newer than those from before. A wrong clock does no harm to entries
// that are known, as their version is always exceeded; among those written without knowledge of each other the faster clock wins.
func (b *Book) Write(now int64, wall uint32, e Entry) Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Node, e.Version = b.node, wall
	if old, ok := b.entries[e.id()]; ok && old.Version >= wall {
		e.Version = old.Version
		if e.Version < math.MaxUint32 {
			e.Version++
		}
	}
	e.Life = min(max(e.Life, 0), maxLife)
	b.totals.Written++
	b.put(now, e)
	return e
}

// Merge takes in an entry of another proxy and tells whether it was news: then others should hear of it from us, too.
func (b *Book) Merge(now int64, e Entry) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Life = min(e.Life, maxLife)
	old, ok := b.entries[e.id()]
	switch {
	case e.Life <= 0:
	case !ok || e.wins(&old.Entry):
		if news = b.put(now, e); news {
			b.totals.Merged++
			return true
		}
		return false
	case !old.wins(&e): // the very same: the shorter life counts, as its copies differ only by the time they were under way
		if until := now + int64(e.Life); until < old.until {
			old.until = until
			b.entries[e.id()] = old
		}
	}
	b.totals.Known++
	return false
}

// put stores an entry if there is room for one of its worth.
func (b *Book) put(now int64, e Entry) bool {
	old, replaces := b.entries[e.id()]
	if replaces {
		b.hash(&old.Entry)
	} else if len(b.entries) >= b.max && !b.makeRoom(now, e.worth()) {
		b.totals.Shed++
		return false
	}
	k := kept{Entry: e, until: now + int64(e.Life)}
	b.entries[e.id()] = k
	b.hash(&k.Entry)
	return true
}

// makeRoom drops the least worthy of a few entries, picked by chance: the map's own order starts anywhere.
func (b *Book) makeRoom(now int64, worth uint8) bool {
	var least id
	found, seen := 256, 0
	for id, k := range b.entries {
		w := int(k.worth())
		if k.until <= now {
			w = -1
		}
		if w < found {
			least, found = id, w
		}
		if seen++; seen == 16 {
			break
		}
	}
	if found > int(worth) || found == 255 {
		return false
	}
	if found >= 0 {
		b.totals.Shed++
	}
	b.drop(least)
	return true
}

func (b *Book) drop(id id) {
	k := b.entries[id]
	b.hash(&k.Entry)
	delete(b.entries, id)
}

func bucketOf(key uint64) int { return int(key*0x9e3779b97f4a7c15>>32) % buckets }

// hash adds an entry to its bucket's hash or takes it out again.
func (b *Book) hash(e *Entry) {
	h := e.Key ^ bits.RotateLeft64(uint64(e.Version)<<32|uint64(e.Node), 17) ^ uint64(e.Value)<<8 ^ uint64(e.Kind)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 29
	b.hashes[bucketOf(e.Key)] ^= h
}

// Get returns an entry with what is left of its life; false if there is none that lives.
func (b *Book) Get(now int64, key uint64, kind Kind) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.entries[id{key, kind}]
	return k.at(now), ok && k.until > now
}

func (k *kept) at(now int64) Entry {
	e := k.Entry
	e.Life = time.Duration(k.until - now)
	return e
}

// Sweep forgets what has ended.
func (b *Book) Sweep(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, k := range b.entries {
		if k.until+int64(grace) <= now {
			b.drop(id)
			b.totals.Expired++
		}
	}
}

// Hashes returns a hash of each bucket. Two Books with the same entries have the same hashes.
func (b *Book) Hashes() []uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]uint32, buckets)
	for i, h := range b.hashes {
		out[i] = uint32(h) ^ uint32(h>>32)
	}
	return out
}

// Digest is one hash of everything.
func (b *Book) Digest() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := uint64(0)
	for _, bucket := range b.hashes {
		h = (h ^ bucket) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return fmt.Sprintf("%016x", h)
}

// Differing returns up to max living entries of the buckets whose hashes are not theirs, the most worthy kinds first where
// there are more. Hashes of another number of buckets differ everywhere.
func (b *Book) Differing(now int64, theirs []uint32, max int) []Entry {
	ours := b.Hashes()
	var differs [buckets]bool
	n := 0
	for i := range differs {
		differs[i] = len(theirs) != buckets || theirs[i] != ours[i]
		if differs[i] {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return b.collect(now, max, func(e *Entry) bool { return differs[bucketOf(e.Key)] })
}

// All returns up to max living entries; where there are more, the newest.
func (b *Book) All(now int64, max int) []Entry {
	return b.collect(now, max, func(*Entry) bool { return true })
}

func (b *Book) collect(now int64, max int, want func(*Entry) bool) []Entry {
	b.mu.Lock()
	var out []Entry
	for _, k := range b.entries {
		if k.until > now && want(&k.Entry) {
			out = append(out, k.at(now))
		}
	}
	b.mu.Unlock()
	if len(out) > max {
		newestFirst(out)
		out = out[:max]
	}
	return out
}

// Len is the number of entries, those in their grace included.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// Totals returns the counts.
func (b *Book) Totals() BookTotals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.totals
}
