package wire

import "bytes"

// skeletonLimit bounds what is kept of a chunk. Chunks with longer surroundings are looked through each time.
const skeletonLimit = 1 << 10

// skeleton is a chunk with a hole where its text was. Nearly all chunks of a stream differ in that one string, so the
// next one is known to carry text and nothing else by two comparisons, some 20 ns instead of 100.
type skeleton struct {
	before []byte // through the text's opening quote
	after  []byte // from its closing quote
}

func (k *skeleton) reset() { k.before, k.after = k.before[:0], k.after[:0] }

// fits says that data is the same chunk with another text. Escapes count: a text that breaks out of its string does not fit.
func (k *skeleton) fits(data []byte) bool {
	hole := len(k.before)
	return hole > 0 && bytes.HasPrefix(data, k.before) && bytes.HasSuffix(data, k.after) &&
		len(data) >= hole+len(k.after) && skipString(data, hole-1) == len(data)-len(k.after)+1
}

// take learns a chunk that was found to be plain.
func (k *skeleton) take(data []byte) {
	k.reset()
	for _, key := range [...]string{`content":"`, `text":"`, `reasoning":"`} {
		i := bytes.Index(data, []byte(key))
		if i < 0 {
			continue
		}
		hole := i + len(key)
		if end := skipString(data, hole-1); end > 0 && hole+len(data)-end < skeletonLimit {
			k.before = append(k.before, data[:hole]...)
			k.after = append(k.after, data[end-1:]...)
		}
		return
	}
}
