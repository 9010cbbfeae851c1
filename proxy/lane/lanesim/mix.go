package lanesim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// Kind is a class of the mix by fresh tokens.
type Kind uint8

const (
	Short  Kind = iota // below 2k
	Medium             // 2k to 16k
	Large              // 16k to 64k
	Huge               // 64k and more
)

// String is the class with its bounds.
func (k Kind) String() string { return [...]string{"<2k", "2-16k", "16-64k", ">=64k"}[k] }

// Mix describes traffic of agents by classes of fresh tokens: 77.7, 18.5, 2.3 and 1.5 % of the requests, which carry 12, 20,
// 14 and 54 % of the fresh tokens, as recorded in 710 coding sessions.
type Mix struct {
	Seed     uint64
	PerSec   float64 // Poisson arrivals
	Length   time.Duration
	Sessions int // whose contexts are cached; interactive and medium requests continue one
	Context  int // tokens of each
	Block    int // of the engine's cache
	NoLong   bool
}

// Make returns the requests, sorted by arrival, and the class of each. The first ones, which make the contexts warm, have no
// class: their number is Sessions, and the mix begins after them.
func (m Mix) Make() (reqs []Request, kinds []Kind) {
	if m.Block <= 0 {
		m.Block = 16
	}
	rng := rand.New(rand.NewPCG(m.Seed, 1))
	contexts := make([][]uint64, m.Sessions)
	at := time.Duration(0)
	for i := range contexts {
		contexts[i] = blocks(uint64(i)<<32, nil, m.Context/m.Block)
		reqs = append(reqs, Request{At: at, Tenant: uint64(i), Prompt: sim.BlockPrompt(m.Block, contexts[i], 0), Fresh: m.Context, Output: 1})
		kinds = append(kinds, Huge)
	}
	at = 600 * time.Second // all warm by then
	end := at + m.Length
	for n := uint64(m.Sessions); ; n++ {
		at += time.Duration(rng.ExpFloat64() / m.PerSec * float64(time.Second))
		if at >= end {
			return reqs, kinds
		}
		kind, fresh := m.draw(rng)
		session := rng.IntN(m.Sessions)
		output := 50 + int(rng.ExpFloat64()*200)
		if m.NoLong && kind >= Large {
			continue
		}
		var base []uint64
		if kind < Large {
			base = contexts[session]
		}
		p := sim.BlockPrompt(m.Block, blocks((n+1)<<40, base, fresh/m.Block), fresh%m.Block)
		reqs = append(reqs, Request{At: at, Tenant: uint64(session), Prompt: p, Fresh: fresh, Output: output})
		kinds = append(kinds, kind)
	}
}

// draw picks a class and a size. The sizes' means are those of the recorded shares.
func (m Mix) draw(rng *rand.Rand) (Kind, int) {
	logUniform := func(lo, hi float64) int { return int(lo * math.Exp(rng.Float64()*math.Log(hi/lo))) }
	switch x := rng.Float64(); {
	case x < 0.777:
		return Short, logUniform(180, 2000)
	case x < 0.777+0.185:
		return Medium, logUniform(2048, 10_000)
	case x < 0.777+0.185+0.023:
		return Large, logUniform(16_384, 50_000)
	}
	return Huge, logUniform(65_536, 250_000)
}

// blocks continues a chain by n blocks that nobody else has.
func blocks(salt uint64, base []uint64, n int) []uint64 {
	b := make([]uint64, len(base), len(base)+n)
	copy(b, base)
	for i := range n {
		x := (salt | uint64(i) | 1<<63) * 0x9e3779b97f4a7c15
		b = append(b, x^x>>29)
	}
	return b
}
