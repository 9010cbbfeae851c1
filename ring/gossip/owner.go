package gossip

// ownerOf is the member that looks after an engine: the one with the greatest hash of both (rendezvous hashing), so that a
// member that goes leaves its engines evenly to the others and no other engine changes hands.
func ownerOf(engine uint32, members []uint32) (owner uint32) {
	var most uint64
	for _, m := range members {
		h := uint64(engine)<<32 | uint64(m)
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
		if h >= most {
			owner, most = m, h
		}
	}
	return owner
}
