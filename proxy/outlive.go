package proxy

import (
	"io"
	"slices"

	"github.com/warmring/warmring/ring/prompt"
)

// outlive reads on in a stream that was taken back after its first token: an
// engine that was told to abort by name goes on for a step or two, and there must
// not be two copies. Where closing is enough it is closed already, and takeBack
// closes what takes too long.
func (r *request) outlive(held []byte, end error) ([]byte, error) {
	for end == nil && len(held) <= maxHeld {
		held = slices.Grow(held, 4096)
		var n int
		n, end = r.x.Read(held[len(held):cap(held)])
		_, _ = r.sniff.Write(held[len(held) : len(held)+n])
		held = held[:len(held)+n]
	}
	if end == io.EOF {
		r.relay.inEvent = !r.sniff.AtBoundary()
		_ = r.sniff.Close()
	}
	r.scratch.held = held
	return held, end
}

// endedWhole tells of a stream that was taken back and has ended whether it is
// whole nevertheless. Only chat and completions have a word for aborts.
func (r *request) endedWhole() bool {
	f := r.route.Family
	return (f == prompt.Chat || f == prompt.Completions) && r.sniff.Finished() && !r.sniff.Aborted()
}
