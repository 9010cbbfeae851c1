package proxy

import (
	"math/rand/v2"
	"sync/atomic"
)

// idSource makes ids that do not repeat within a process and hardly between two.
type idSource struct {
	base uint64
	n    *atomic.Uint64
}

func newIDSource() idSource { return idSource{base: rand.Uint64(), n: new(atomic.Uint64)} }

// next walks a full-period sequence (Weyl) through all 64-bit values.
func (i idSource) next() uint64 { return i.base + i.n.Add(1)*0x9e3779b97f4a7c15 }

func (s *Server) nextRID() string { return "wr-" + string(appendHex16(nil, s.ids.next())) }
