package lane

import (
	"testing"

	"pgregory.net/rapid"
)

// The order in which a queue serves is the order that its rules say, however it was filled and thinned out.
func TestTheQueueKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []request
		q := newQueue(&all)
		live := map[uint32]uint64{} // request → tenant
		marks := map[uint64]int64{}
		var line int64
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				i := uint32(len(all))
				all = append(all, request{fresh: rapid.IntRange(1, 50).Draw(t, "fresh"), order: int64(rapid.IntRange(0, 20).Draw(t, "order")), seq: uint64(i)})
				tenant := uint64(rapid.IntRange(0, 4).Draw(t, "tenant"))
				if n, _ := q.of(tenant); n == 0 {
					marks[tenant] = line
				}
				live[i] = tenant
				q.push(i, tenant)
			case 2:
				if i := q.next(); i != none {
					// Within its tenant nobody comes before it, and no tenant has a lower mark.
					mine := marks[live[i]] + int64(all[i].fresh)
					for j, tenant := range live {
						if tenant == live[i] && (all[j].order < all[i].order || all[j].order == all[i].order && j < i) {
							t.Fatalf("%d goes before %d", i, j)
						}
					}
					for tenant, mark := range marks {
						if n, _ := q.of(tenant); n > 0 {
							head := q.bySlot[q.slots[tenant]].queued[0]
							if mark+int64(all[head].fresh) < mine {
								t.Fatalf("tenant %d goes before %d", live[i], tenant)
							}
						}
					}
					marks[live[i]] = mine
					line = max(line, mine)
					q.take(i)
					delete(live, i)
				}
			case 3:
				if n := q.len(); n > 0 {
					i := q.arrival.first
					for range rapid.IntRange(0, n-1).Draw(t, "which") {
						i = all[i].next
					}
					q.remove(i)
					delete(live, i)
				}
			}
			if q.len() != len(live) {
				t.Fatalf("%d queued, want %d", q.len(), len(live))
			}
		}
	})
}
