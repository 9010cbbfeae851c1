package gossip

import (
	"container/heap"
	"sync"
)

// news is the queue of entries to be spread by gossip. It holds ids, not entries: what goes out is what the Book says by then, so
// a newer entry takes the place of an older one without a word. Entries go out least sent first, own ones before those of
// others (a busy cluster must not drown a proxy's own news), the worthiest first. A full queue sheds the least worthy.
type news struct {
	max int

	mu     sync.Mutex
	heap   newsHeap
	byID   map[id]*item
	seq    uint64
	shed   uint64 // ids dropped before they were sent twice
	cut    uint64 // ids dropped after that: others pass them on
	sent   uint64 // entries put into messages, each transmission counted
	retire uint64 // ids that were sent as often as they should
}

type item struct {
	id       id
	sent     int
	relayed  bool
	worth    uint8
	seq      uint64 // newest first
	position int
}

func newNews(max int) *news { return &news{max: max, byID: make(map[id]*item)} }

// add queues an entry. sent is how often it counts as sent already: one that most members have got straight from its writer
// needs fewer transmissions.
func (n *news) add(e *Entry, relayed bool, sent int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	if it := n.byID[e.id()]; it != nil {
		it.sent, it.relayed, it.worth, it.seq = sent, relayed, e.worth(), n.seq
		heap.Fix(&n.heap, it.position)
		return
	}
	if len(n.heap) >= n.max {
		worst := n.worst()
		if worst.worth > e.worth() || worst.worth == e.worth() && worst.sent == 0 {
			n.shed++
			return
		}
		if worst.sent < 2 {
			n.shed++
		} else {
			n.cut++
		}
		heap.Remove(&n.heap, worst.position)
		delete(n.byID, worst.id)
	}
	it := &item{id: e.id(), sent: sent, relayed: relayed, worth: e.worth(), seq: n.seq}
	n.byID[it.id] = it
	heap.Push(&n.heap, it)
}

// worst is the one to shed: the least worthy and, of these, the one that was sent most. It is a leaf of the heap or near one.
func (n *news) worst() *item {
	var worst *item
	for _, it := range n.heap[len(n.heap)/2:] {
		if worst == nil || it.worth < worst.worth || it.worth == worst.worth && it.sent > worst.sent {
			worst = it
		}
	}
	return worst
}

// take gives visit up to max ids for one message, until it says no to one, and counts the others as sent once more; those that
// were sent times times leave the queue.
func (n *news) take(max, times int, visit func(id) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var again []*item
	for range max {
		if len(n.heap) == 0 || !visit(n.heap[0].id) {
			break
		}
		it := heap.Pop(&n.heap).(*item)
		n.sent++
		if it.sent++; it.sent >= times {
			delete(n.byID, it.id)
			n.retire++
			continue
		}
		again = append(again, it)
	}
	for _, it := range again {
		heap.Push(&n.heap, it)
	}
}

func (n *news) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.heap)
}

// NewsView is the state of the queue.
type NewsView struct {
	Queued uint64 `json:"queued"`
	Sent   uint64 `json:"sent"` // entries, each transmission counted
	Shed   uint64 `json:"shed"` // entries dropped before they were sent twice; they spread by comparison only
	Cut    uint64 `json:"cut"`  // entries dropped later
}

func (n *news) view() NewsView {
	n.mu.Lock()
	defer n.mu.Unlock()
	return NewsView{Queued: uint64(len(n.heap)), Sent: n.sent, Shed: n.shed, Cut: n.cut}
}

type newsHeap []*item

func (h newsHeap) Len() int { return len(h) }
func (h newsHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.sent != b.sent:
		return a.sent < b.sent
	case a.relayed != b.relayed:
		return b.relayed
	case a.worth != b.worth:
		return a.worth > b.worth
	}
	return a.seq > b.seq
}
func (h newsHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}
func (h *newsHeap) Push(x any) {
	it := x.(*item)
	it.position = len(*h)
	*h = append(*h, it)
}
func (h *newsHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
