package workload

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Totals are the sums over a workload, in tokens where nothing else is said.
type Totals struct {
	Requests int
	Prompt   int64 // of all prompts
	Fresh    int64 // each distinct prefix once: what a single cache that never forgets would compute, and in the end hold
	Largest  int   // the longest prompt
}

// Ideal is the share of prompt tokens that a single cache that never forgets would hit. It leaves out the last block of
// each prompt, of which engines compute up to one block again.
func (t Totals) Ideal() float64 {
	if t.Prompt == 0 {
		return 0
	}
	return 1 - float64(t.Fresh)/float64(t.Prompt)
}

// Totals adds the workload up. The order in which the requests are sent does not matter: whoever sends a prefix first
// computes it.
func (w *Workload) Totals() Totals {
	var t Totals
	seen := map[uint64]bool{}
	for _, s := range w.Sessions {
		last := s.Turns[len(s.Turns)-1].cut
		lengths := make([]int64, last+1) // of the prompt up to each piece
		lengths[0] = int64(s.head.tokens())
		key := xxhash.Sum64String(s.Client.Family.String() + s.head.system)
		if !seen[key] {
			seen[key] = true
			t.Fresh += lengths[0]
		}
		for i := range s.pieces[:last] {
			p := &s.pieces[i]
			n := int64(p.tokens())
			lengths[i+1] = lengths[i] + n
			key = p.hash(key)
			if !seen[key] {
				seen[key] = true
				t.Fresh += n
			}
		}
		for _, turn := range s.Turns {
			t.Requests++
			t.Prompt += lengths[turn.cut]
			t.Largest = max(t.Largest, int(lengths[turn.cut]))
		}
	}
	return t
}

// hash of everything up to and including the piece.
func (p *piece) hash(before uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(before)
	var sizes [24]byte // so that no two splits of the same letters are equal
	binary.LittleEndian.PutUint64(sizes[:], uint64(p.kind))
	binary.LittleEndian.PutUint64(sizes[8:], uint64(len(p.text)))
	binary.LittleEndian.PutUint64(sizes[16:], uint64(len(p.args)))
	_, _ = d.Write(sizes[:])
	_, _ = d.WriteString(p.text)
	_, _ = d.WriteString(p.args)
	return d.Sum64()
}
