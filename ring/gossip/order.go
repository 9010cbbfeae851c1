package gossip

import (
	"cmp"
	"slices"
)

// newestFirst puts operators' words before placements, and later versions before earlier ones.
func newestFirst(list []Entry) {
	slices.SortFunc(list, func(a, b Entry) int {
		if aw, bw := a.worth() >= 254, b.worth() >= 254; aw != bw {
			if aw {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(b.worth(), a.worth()))
	})
}
