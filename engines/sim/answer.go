package sim

import "encoding/binary"

// answer is what the engine will say, fixed when the request is submitted.
type answer struct {
	seed   uint64
	tokens int
	reason string // OpenAI's finish_reason: stop, length, tool_calls
	call   *toolCall
	ids    []uint64 // token ids, when they are known
	big    int      // bytes of padding in the first piece (a fault)
}

type toolCall struct {
	id     string
	name   string
	args   string
	custom bool
}

// makeAnswer decides the answer to one prompt of a call. The same prompt gets the same answer.
func makeAnswer(c *call, seed uint64, natural int, tok Tokenizer) *answer {
	a := &answer{seed: seed, reason: "stop"}
	if t, args, ok := c.scripted(); ok {
		a.call = &toolCall{id: hexID(chain(seed, 1)), name: t.name, args: args, custom: t.custom}
		a.reason = "tool_calls"
		rendered := append(append(append([]byte{markCall}, t.name...), 0), args...)
		if tok == nil {
			a.ids = tokens4(rendered)
		} else {
			a.ids = tok(rendered)
		}
		a.tokens = max(len(a.ids), 1)
		return a
	}
	n, limited := c.limit(natural)
	a.tokens = n
	if limited {
		a.reason = "length"
	}
	if tok == nil {
		a.ids = make([]uint64, n)
		for i := range a.ids {
			p := a.word(i)
			a.ids[i] = uint64(binary.LittleEndian.Uint32(p[:]))
		}
	}
	return a
}

// word is the text of token i: four letters or a space and three, so one token of the built-in
// tokenizer each.
func (a *answer) word(i int) [tokenBytes]byte {
	h := chain(a.seed, uint64(i))
	var w [tokenBytes]byte
	for k := range w {
		w[k] = 'a' + byte(h>>(8*k)%26)
	}
	if h>>40%3 != 0 || i == 0 {
		w[0] = ' '
	}
	return w
}

// text appends tokens from through to-1 as text.
func (a *answer) text(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		if i == 0 {
			for n := 0; n < a.big; n++ {
				dst = append(dst, 'z')
			}
		}
		w := a.word(i)
		dst = append(dst, w[:]...)
	}
	return dst
}

func hexID(h uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = digits[h>>(60-4*i)&15]
	}
	return string(b[:])
}
