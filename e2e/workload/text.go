package workload

import (
	"fmt"
	"strings"
)

const syllables = "bedokalumi" + "nopertasow" + "texiyazofe" + "garhol"

// text of so many tokens in an invented language, with lines and quotes like source has them. It begins with a number
// that no other text has, so that two texts differ from their first words on.
func (w *writer) text(opening string, tokens int) string {
	size := tokens * BytesPerToken
	var b strings.Builder
	b.Grow(size + 24)
	fmt.Fprintf(&b, "%08x %s", w.rng.Uint32(), opening)
	for b.Len() < size {
		r := w.rng.Uint64()
		switch {
		case r>>60 == 0:
			b.WriteByte('\n')
		case r>>60 == 1:
			b.WriteString(` "`)
		default:
			b.WriteByte(' ')
		}
		for n := 2 + r&3; n > 0; n-- {
			r >>= 5
			at := 2 * int(r%(uint64(len(syllables))/2))
			b.WriteString(syllables[at : at+2])
		}
		if r>>50&15 == 1 {
			b.WriteString(`",`)
		}
	}
	s := b.String()
	return s[:max(min(size, len(s)), min(len(s), 8))]
}
