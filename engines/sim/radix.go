package sim

import "sort"

// radixTree is SGLang's radix cache over chained block hashes. A node holds a run of blocks; locked
// nodes (on the path of a live request) cannot be evicted; eviction takes the least recently used
// unlocked leaf, whole. Because hashes are chained, two runs agree up to a point that a binary search
// finds.
type radixTree struct {
	root    *radixNode
	clock   int64
	size    int // blocks in the tree
	locked  int // blocks in locked nodes
	leaves  map[*radixNode]struct{}
	evicted int64
}

type radixNode struct {
	run      []uint64
	parent   *radixNode
	children map[uint64]*radixNode // by the first hash of the run
	lock     int
	used     int64
}

func newRadixTree() *radixTree {
	t := &radixTree{}
	t.reset()
	return t
}

func (t *radixTree) reset() {
	t.root = &radixNode{children: map[uint64]*radixNode{}}
	t.size, t.locked = 0, 0
	t.leaves = map[*radixNode]struct{}{}
}

func common(a, b []uint64) int {
	n := min(len(a), len(b))
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}

// peek counts the blocks of a chain that are in the tree and changes nothing.
func (t *radixTree) peek(chain []uint64) int {
	node, n := t.root, 0
	for n < len(chain) {
		child := node.children[chain[n]]
		if child == nil {
			break
		}
		same := common(child.run, chain[n:])
		n += same
		if same < len(child.run) {
			break
		}
		node = child
	}
	return n
}

// match finds the longest known beginning of a chain, touches it, and returns its length in blocks and
// the node that ends there (splitting one if need be).
func (t *radixTree) match(chain []uint64) (int, *radixNode) {
	t.clock++
	node, n := t.root, 0
	for n < len(chain) {
		child := node.children[chain[n]]
		if child == nil {
			break
		}
		same := common(child.run, chain[n:])
		if same < len(child.run) {
			child = t.split(child, same)
		}
		child.used = t.clock
		node, n = child, n+same
	}
	return n, node
}

// insert makes a chain known and returns the node that ends there.
func (t *radixTree) insert(chain []uint64) *radixNode {
	n, node := t.match(chain)
	if n == len(chain) {
		return node
	}
	leaf := &radixNode{run: chain[n:len(chain):len(chain)], parent: node, children: map[uint64]*radixNode{}, used: t.clock}
	node.children[chain[n]] = leaf
	delete(t.leaves, node)
	t.leaves[leaf] = struct{}{}
	t.size += len(leaf.run)
	return leaf
}

// split cuts a node's run after at blocks and returns the upper part.
func (t *radixTree) split(n *radixNode, at int) *radixNode {
	upper := &radixNode{run: n.run[:at:at], parent: n.parent, lock: n.lock, used: n.used, children: map[uint64]*radixNode{n.run[at]: n}}
	n.parent.children[n.run[0]] = upper
	n.run, n.parent = n.run[at:], upper
	return upper
}

func (t *radixTree) lock(n *radixNode) {
	for ; n != t.root; n = n.parent {
		if n.lock == 0 {
			t.locked += len(n.run)
		}
		n.lock++
	}
}

func (t *radixTree) unlock(n *radixNode) {
	for ; n != nil && n != t.root; n = n.parent {
		if n.lock--; n.lock == 0 {
			t.locked -= len(n.run)
		}
	}
}

// evict removes least recently used unlocked leaves until want blocks are gone or none is left.
func (t *radixTree) evict(want int) {
	for want > 0 {
		var oldest *radixNode
		for n := range t.leaves {
			if n.lock == 0 && (oldest == nil || n.used < oldest.used) {
				oldest = n
			}
		}
		if oldest == nil {
			return
		}
		want -= len(oldest.run)
		t.size -= len(oldest.run)
		t.evicted += int64(len(oldest.run))
		delete(t.leaves, oldest)
		parent := oldest.parent
		delete(parent.children, oldest.run[0])
		if parent != t.root && len(parent.children) == 0 {
			t.leaves[parent] = struct{}{}
		}
	}
}
