package ring

// none is the link that leads nowhere. Slot 0 of every slab is never handed out, so zeroed links are none.
const none = 0

const (
	chunkBits = 10
	chunkSize = 1 << chunkBits
)

// slab keeps values of one type in chunks that never move and names them by uint32 links: no pointer per value for the
// collector to follow, and no copy of everything when it grows. Freed slots are handed out again, newest first.
type slab[T any] struct {
	chunks []*[chunkSize]T
	used   uint32 // slots handed out at least once, slot 0 included
	free   []uint32
}

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i>>chunkBits][i%chunkSize] }

// take returns the link of a zeroed slot.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if s.used == 0 {
		s.used = 1
	}
	if int(s.used>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkSize]T))
	}
	i := s.used
	s.used++
	return i
}

// give takes a slot back and zeroes it.
func (s *slab[T]) give(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}

// len is how many slots are in use.
func (s *slab[T]) len() int {
	if s.used == 0 {
		return 0
	}
	return int(s.used) - 1 - len(s.free)
}

// table finds values of a slab by a hash. It is a linear hash table: one bucket more for every value more, by splitting
// one old bucket, so that it never stops to rehash (millions of entries under the Placer's mutex) and never holds twice
// the memory it needs. The values themselves carry the link to the next one of their bucket.
type table struct {
	heads []*[chunkSize]uint32
	size  uint32 // buckets in use
	mask  uint32 // size rounded up to a power of two, less one
	n     int
	hash  func(i uint32) uint64  // of the value in slot i
	next  func(i uint32) *uint32 // its link
}

func newTable(hash func(uint32) uint64, next func(uint32) *uint32) table {
	return table{heads: []*[chunkSize]uint32{new([chunkSize]uint32)}, size: 1, hash: hash, next: next}
}

func (t *table) bucket(h uint64) *uint32 {
	b := uint32(h) & t.mask
	if b >= t.size {
		b &= t.mask >> 1
	}
	return &t.heads[b>>chunkBits][b%chunkSize]
}

// first is the slot with which the bucket of h begins.
func (t *table) first(h uint64) uint32 { return *t.bucket(h) }

func (t *table) insert(i uint32) {
	head := t.bucket(t.hash(i))
	*t.next(i) = *head
	*head = i
	if t.n++; t.n > int(t.size) {
		t.grow()
	}
}

// remove takes slot i out, which must be in the table.
func (t *table) remove(i uint32) {
	at := t.bucket(t.hash(i))
	for *at != i {
		at = t.next(*at)
	}
	*at = *t.next(i)
	*t.next(i) = none
	t.n--
}

// replace puts slot with in the place of slot i; both have the same hash.
func (t *table) replace(i, with uint32) {
	at := t.bucket(t.hash(i))
	for *at != i {
		at = t.next(*at)
	}
	*t.next(with) = *t.next(i)
	*t.next(i) = none
	*at = with
}

// grow adds a bucket and moves to it what belongs there.
func (t *table) grow() {
	added := t.size
	if added > t.mask {
		t.mask = t.mask<<1 | 1
	}
	if int(added>>chunkBits) == len(t.heads) {
		t.heads = append(t.heads, new([chunkSize]uint32))
	}
	t.size++
	source := added & (t.mask >> 1)
	stay, move := uint32(none), uint32(none)
	for i := t.heads[source>>chunkBits][source%chunkSize]; i != none; {
		next := t.next(i)
		following := *next
		if uint32(t.hash(i))&t.mask == added {
			*next, move = move, i
		} else {
			*next, stay = stay, i
		}
		i = following
	}
	t.heads[source>>chunkBits][source%chunkSize] = stay
	t.heads[added>>chunkBits][added%chunkSize] = move
}
