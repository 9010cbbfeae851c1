package sim

import "math/bits"

// Prompt is a prompt as the cache sees it: one chained hash per full block, so that equal hashes mean
// equal beginnings.
type Prompt struct {
	Blocks []uint64 // hash of each full block, each covering everything before it too; not modified
	End    uint64   // hash over all tokens, from which the answer's blocks go on
	Tokens int      // tokens in all; len(Blocks) == Tokens / block size
}

// Root is the hash state before the first token: what does not match here never shares a block.
// Engines keep models and cache salts apart this way.
func Root(model, salt string) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, s := range [2]string{model, salt} {
		for i := 0; i < len(s); i++ {
			h = chain(h, uint64(s[i]))
		}
		h = chain(h, 1<<32|uint64(len(s)))
	}
	return h
}

// HashTokens makes a Prompt of token ids for an engine with the given block size.
func HashTokens(root uint64, blockTokens int, tokens []uint64) Prompt {
	p := Prompt{Tokens: len(tokens), Blocks: make([]uint64, 0, len(tokens)/blockTokens)}
	h := root
	for left := blockTokens; len(tokens) > 0; tokens = tokens[1:] {
		h = chain(h, tokens[0])
		if left--; left == 0 {
			p.Blocks = append(p.Blocks, h)
			left = blockTokens
		}
	}
	p.End = h
	return p
}

// BlockPrompt makes a Prompt of block hashes that are already chained (as traces have them), followed
// by tail tokens that fill no block.
func BlockPrompt(blockTokens int, blocks []uint64, tail int) Prompt {
	p := Prompt{Blocks: blocks, Tokens: len(blocks)*blockTokens + tail, End: uint64(tail)}
	if len(blocks) > 0 {
		p.End = chain(blocks[len(blocks)-1], uint64(tail))
	}
	return p
}

// chain mixes one token into the hash of everything before it. One multiplication per token keeps a
// 100k-token prompt at a block size of 1 below a millisecond.
func chain(h, token uint64) uint64 {
	hi, lo := bits.Mul64(h^0xa0761d6478bd642f, token^0xe7037ed1a0b428db^(h>>32))
	return hi ^ lo ^ h
}
