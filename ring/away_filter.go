package ring

// awayFilter says in one step that nothing has been told of a key, which is so for most that are asked for: a new session asks for
// a dozen, and each search through the table of 100,000 strangers misses the processor's caches three times. It counts the keys with
// one hash, so it may say "perhaps" of a key that is not there, but never "no" of one that is.
type awayFilter struct{ counts [filterSize]uint8 }

const filterSize = 1 << 18 // bytes; at 100,000 strangers it says "perhaps" to a third of what is not there

func (f *awayFilter) at(hash uint64) *uint8 { return &f.counts[hash>>40%filterSize] }

// add counts a key. A count that has reached its greatest value stays there: it says "perhaps" for good.
func (f *awayFilter) add(hash uint64) {
	if n := f.at(hash); *n < 255 {
		*n++
	}
}

func (f *awayFilter) remove(hash uint64) {
	if n := f.at(hash); *n < 255 {
		*n--
	}
}

func (f *awayFilter) perhaps(hash uint64) bool { return *f.at(hash) != 0 }
