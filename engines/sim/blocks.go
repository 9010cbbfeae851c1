package sim

// blockPool is vLLM's block pool: every block is either held by requests (ref > 0) or in the free
// queue, from whose front new blocks are taken. A freed block keeps its hash and stays findable until
// it is handed out again, so the free queue is the cache's LRU.
type blockPool struct {
	blocks  []block
	byHash  map[uint64]int32 // hash → first block with it; more of the same hang on block.same
	free    int
	evicted int64
}

type block struct {
	hash       uint64
	hashed     bool
	ref        int32
	prev, next int32 // free queue; block 0 is its sentinel
	same       int32 // next block with the same hash; 0 = none
}

// newBlockPool makes a pool of total blocks. One is never handed out: vLLM's null block, here the
// sentinel of the free queue.
func newBlockPool(total int) *blockPool {
	p := &blockPool{blocks: make([]block, total), byHash: map[uint64]int32{}}
	for i := 1; i < total; i++ {
		p.pushBack(int32(i))
	}
	return p
}

func (p *blockPool) pushBack(i int32)  { p.insert(p.blocks[0].prev, i) }
func (p *blockPool) pushFront(i int32) { p.insert(0, i) }

func (p *blockPool) insert(after, i int32) {
	next := p.blocks[after].next
	p.blocks[i].prev, p.blocks[i].next = after, next
	p.blocks[after].next, p.blocks[next].prev = i, i
	p.free++
}

func (p *blockPool) unlink(i int32) {
	b := &p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// lookup counts how many of the first most blocks of a chain can be found, and how many of those are
// in the free queue (holding them uses up free blocks).
func (p *blockPool) lookup(chain []uint64, most int) (hit, free int) {
	for hit < most {
		i, ok := p.byHash[chain[hit]]
		if !ok {
			break
		}
		if p.blocks[i].ref == 0 {
			free++
		}
		hit++
	}
	return hit, free
}

// hold appends the first hit blocks of a chain to dst and takes a reference to each.
func (p *blockPool) hold(dst []int32, chain []uint64, hit int) []int32 {
	for _, h := range chain[:hit] {
		i := p.byHash[h]
		if p.blocks[i].ref == 0 {
			p.unlink(i)
		}
		p.blocks[i].ref++
		dst = append(dst, i)
	}
	return dst
}

// take hands out n blocks, evicting the least recently freed. The caller has checked p.free >= n.
func (p *blockPool) take(dst []int32, n int) []int32 {
	for ; n > 0; n-- {
		i := p.blocks[0].next
		p.unlink(i)
		p.forget(i)
		p.blocks[i].ref = 1
		dst = append(dst, i)
	}
	return dst
}

// publish makes a held block findable under a hash.
func (p *blockPool) publish(i int32, hash uint64) {
	b := &p.blocks[i]
	if b.hashed {
		return
	}
	b.hash, b.hashed = hash, true
	if first, ok := p.byHash[hash]; ok {
		b.same = p.blocks[first].same
		p.blocks[first].same = i
		return
	}
	p.byHash[hash] = i
}

func (p *blockPool) forget(i int32) {
	b := &p.blocks[i]
	if !b.hashed {
		return
	}
	p.evicted++
	first := p.byHash[b.hash]
	switch {
	case first != i:
		for first != 0 && p.blocks[first].same != i {
			first = p.blocks[first].same
		}
		p.blocks[first].same = b.same
	case b.same != 0:
		p.byHash[b.hash] = b.same
	default:
		delete(p.byHash, b.hash)
	}
	b.hashed, b.same = false, 0
}

// release drops a request's references, last block first: a chain loses its tail before its head.
// Blocks without a hash can never be found again and are reused first.
func (p *blockPool) release(blocks []int32) {
	for n := len(blocks) - 1; n >= 0; n-- {
		i := blocks[n]
		b := &p.blocks[i]
		if b.ref--; b.ref > 0 {
			continue
		}
		if b.hashed {
			p.pushBack(i)
		} else {
			p.pushFront(i)
		}
	}
}

// reset forgets all hashes. Only right while nothing is held.
func (p *blockPool) reset() {
	for i := range p.blocks {
		p.blocks[i].hashed, p.blocks[i].same = false, 0
	}
	clear(p.byHash)
}
