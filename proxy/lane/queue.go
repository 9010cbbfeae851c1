package lane

// patience is how many seconds of waiting outweigh one second of prefill in the order of the long queue: a request of 10 s
// is passed only by shorter ones that arrive within 20 s.
const patience = 2

// queue is the long requests that were never sent yet. Within a tenant they go by remaining work with ageing: as both grow
// linearly, the order of two requests never changes, and a heap holds them.
//
// Tenants share the engine by their deficits: each has a mark on a line of admitted fresh tokens, and the tenant goes next
// whose mark would be lowest after its request. These are the shares of deficit round robin without its rounds
// (self-clocked fair queuing, Golestani 1994). A tenant that has nothing queued is forgotten, and comes back at the line's
// present end, so idleness earns nothing.
type queue struct {
	all     *[]request
	arrival list // the oldest expires first
	bySlot  []tenant
	free    []uint32
	slots   map[uint64]uint32
	heap    []uint32 // tenant slots by (mark after the next request, since)
	line    int64    // fresh tokens
	fresh   int64    // tokens of all that are queued
	clock   uint64
}

type tenant struct {
	key    uint64
	mark   int64  // fresh tokens
	since  uint64 // order in which tenants became active, for ties
	queued []uint32
	bytes  int64  // of their bodies
	at     uint32 // in the heap
}

func newQueue(all *[]request) queue {
	return queue{all: all, arrival: newList(), slots: map[uint64]uint32{}}
}

func (q *queue) len() int { return q.arrival.n }

// of is how many requests of a tenant are queued, and the bytes of their bodies.
func (q *queue) of(tenant uint64) (n int, bytes int64) {
	slot, ok := q.slots[tenant]
	if !ok {
		return 0, 0
	}
	t := &q.bySlot[slot]
	return len(t.queued), t.bytes
}

// next is the request whose turn it is.
func (q *queue) next() uint32 {
	if len(q.heap) == 0 {
		return none
	}
	return q.bySlot[q.heap[0]].queued[0]
}

func (q *queue) push(i uint32, key uint64) {
	slot, ok := q.slots[key]
	if !ok {
		if n := len(q.free); n > 0 {
			slot, q.free = q.free[n-1], q.free[:n-1]
		} else {
			slot = uint32(len(q.bySlot))
			q.bySlot = append(q.bySlot, tenant{})
		}
		q.clock++
		t := &q.bySlot[slot]
		t.key, t.mark, t.since, t.at = key, q.line, q.clock, uint32(len(q.heap))
		q.slots[key] = slot
		q.heap = append(q.heap, slot)
	}
	q.arrival.push(*q.all, i)
	r, t := &(*q.all)[i], &q.bySlot[slot]
	r.slot, r.at = slot, uint32(len(t.queued))
	t.bytes += r.bytes
	q.fresh += int64(r.fresh)
	t.queued = append(t.queued, i)
	q.rise(t, len(t.queued)-1)
	q.fix(t)
}

// take removes a request whose turn has come and charges its tenant.
func (q *queue) take(i uint32) {
	r := &(*q.all)[i]
	t := &q.bySlot[r.slot]
	t.mark += int64(r.fresh)
	q.line = max(q.line, t.mark)
	q.remove(i)
}

// remove drops a request.
func (q *queue) remove(i uint32) {
	q.arrival.remove(*q.all, i)
	r := &(*q.all)[i]
	slot, at := r.slot, int(r.at)
	t := &q.bySlot[slot]
	t.bytes -= r.bytes
	q.fresh -= int64(r.fresh)
	n := len(t.queued) - 1
	moved := t.queued[n]
	t.queued = t.queued[:n]
	if at < n {
		t.queued[at] = moved
		(*q.all)[moved].at = uint32(at)
		q.sink(t, q.rise(t, at))
	}
	if n > 0 {
		q.fix(t)
		return
	}
	hole := int(t.at)
	n = len(q.heap) - 1
	last := q.heap[n]
	q.heap = q.heap[:n]
	if hole < n {
		q.heap[hole] = last
		q.bySlot[last].at = uint32(hole)
		q.fix(&q.bySlot[last])
	}
	delete(q.slots, t.key)
	q.free = append(q.free, slot)
}

func (q *queue) before(a, b uint32) bool {
	x, y := &(*q.all)[a], &(*q.all)[b]
	return x.order < y.order || x.order == y.order && x.seq < y.seq
}

func (q *queue) rise(t *tenant, at int) int {
	h := t.queued
	for at > 0 {
		up := (at - 1) / 2
		if !q.before(h[at], h[up]) {
			break
		}
		h[at], h[up] = h[up], h[at]
		(*q.all)[h[at]].at, (*q.all)[h[up]].at = uint32(at), uint32(up)
		at = up
	}
	return at
}

func (q *queue) sink(t *tenant, at int) {
	h := t.queued
	for {
		least := at
		for down := 2*at + 1; down <= 2*at+2 && down < len(h); down++ {
			if q.before(h[down], h[least]) {
				least = down
			}
		}
		if least == at {
			return
		}
		h[at], h[least] = h[least], h[at]
		(*q.all)[h[at]].at, (*q.all)[h[least]].at = uint32(at), uint32(least)
		at = least
	}
}

func (q *queue) tenantBefore(a, b uint32) bool {
	x, y := &q.bySlot[a], &q.bySlot[b]
	mx := x.mark + int64((*q.all)[x.queued[0]].fresh)
	my := y.mark + int64((*q.all)[y.queued[0]].fresh)
	return mx < my || mx == my && x.since < y.since
}

// fix restores a tenant's place after its mark or its next request changed.
func (q *queue) fix(t *tenant) {
	h, at := q.heap, int(t.at)
	swap := func(a, b int) {
		h[a], h[b] = h[b], h[a]
		q.bySlot[h[a]].at, q.bySlot[h[b]].at = uint32(a), uint32(b)
	}
	for at > 0 && q.tenantBefore(h[at], h[(at-1)/2]) {
		swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
	for {
		least := at
		for down := 2*at + 1; down <= 2*at+2 && down < len(h); down++ {
			if q.tenantBefore(h[down], h[least]) {
				least = down
			}
		}
		if least == at {
			return
		}
		swap(at, least)
		at = least
	}
}
