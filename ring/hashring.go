package ring

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// hashRing is a consistent-hash ring: every member owns points on a circle of 64-bit hashes in number of its weight, and a
// key belongs to the member with the next point clockwise. It is built from names and weights alone and never changes,
// so two proxies with the same members build the same ring whatever the order in which they learned of them.
type hashRing struct {
	hashes []uint64 // ascending
	owners []uint16 // member of each point, an index into the names it was built from
	starts []uint32 // starts[b] is the first point whose hash has the top bits b or higher
	shift  uint
}

// member is what the ring needs to know of an engine.
type member struct {
	name   string
	weight float64
}

// points is how many virtual nodes a member gets; at least one, so that no member is unreachable.
func points(perUnit int, weight float64) int {
	if weight <= 0 {
		weight = 1
	}
	return max(1, int(float64(perUnit)*min(weight, 1000)+0.5))
}

// newHashRing builds the ring of members. Points with equal hashes are ordered by name.
func newHashRing(perUnit int, members []member) *hashRing {
	type node struct {
		hash  uint64
		owner uint16
	}
	total := 0
	for _, m := range members {
		total += points(perUnit, m.weight)
	}
	nodes := make([]node, 0, total)
	for i, m := range members {
		base := xxhash.Sum64String(m.name)
		for v := range points(perUnit, m.weight) {
			nodes = append(nodes, node{join(base, uint64(v)), uint16(i)})
		}
	}
	slices.SortFunc(nodes, func(a, b node) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(members[a.owner].name, members[b.owner].name)
	})
	r := &hashRing{hashes: make([]uint64, total), owners: make([]uint16, total)}
	for i, n := range nodes {
		r.hashes[i], r.owners[i] = n.hash, n.owner
	}
	width := bits.Len(uint(total))
	r.shift = uint(64 - width)
	r.starts = make([]uint32, 1<<width+1)
	at := 0
	for b := range r.starts {
		for at < total && r.hashes[at]>>r.shift < uint64(b) {
			at++
		}
		r.starts[b] = uint32(at)
	}
	return r
}

// find returns the first point at or behind the key's place on the circle. The ring must not be empty.
func (r *hashRing) find(key uint64) int {
	h := mix(key)
	i := int(r.starts[h>>r.shift]) // hashes are uniform: the point is a step or two from here
	for i < len(r.hashes) && r.hashes[i] < h {
		i++
	}
	if i == len(r.hashes) {
		return 0
	}
	return i
}

// after is the next point clockwise.
func (r *hashRing) after(i int) int {
	if i++; i == len(r.hashes) {
		return 0
	}
	return i
}
