package prompt

import (
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Tags stand before each part in the digest. They cannot occur in JSON outside a string, so two lists of parts that
// differ never feed the digest the same bytes. They do not count as prompt bytes.
const (
	tagTool    = "\xf1"
	tagSystem  = "\xf2"
	tagTurn    = "\xf3"
	tagIDs     = "\xf4"
	tagRaw     = "\xf5"
	bareBefore = `{"role":"user","content":`
	bareAfter  = `}`
)

// writer feeds the digest and counts.
type writer struct {
	d     xxhash.Digest
	bytes int    // canonical bytes so far
	next  int    // where the next stride of the current part ends
	kept  int    // Bytes of the last kept point
	small []byte // short pieces that wait to be fed together; at most smallCap
}

// smallCap is how many bytes of short pieces are fed to the digest at once.
const smallCap = 512

// Fingerprint fills Chain, Head, First, Bytes and Whole from the body that was scanned last, in the scope of seed (see
// Seed); a cache_salt in the body narrows the scope. Chains are a pure function of (seed, canonical prompt): a prompt that
// extends another has a chain that extends the other's, but for the other's last point when that ends in the middle of a
// text that went on.
func (p *Prompt) Fingerprint(body []byte, seed uint64) {
	w := &p.writer
	if p.salt != (Span{}) && p.Fallback == "" {
		w.d.ResetWithSeed(seed)
		w.d.Write(p.salt.Of(body))
		seed = w.d.Sum64()
	}
	if w.small == nil {
		w.small = make([]byte, 0, smallCap)
	}
	w.small = w.small[:0]
	t := &p.trace
	t.scope = seed
	// The chain of a remembered beginning stands as it is; see restore.
	known := p.Fallback == "" && t.past.turns > 0 && t.past.scope == seed
	if !known {
		t.past = past{}
		w.d.ResetWithSeed(seed)
	} else {
		w.d = t.past.digest
	}
	w.bytes, w.kept = t.past.bytes, t.past.kept
	p.Chain, p.Head, p.First = p.Chain[:t.past.points], t.past.head, t.past.first
	if p.Fallback != "" {
		p.raw(body)
	} else {
		p.parts(body, t.past.turns)
	}
	switch {
	case t.keep == 0:
	case t.past.turns == t.keep:
		t.m.learn(p, body, known)
	default: // its chain is too long
		t.m.shed.Add(1)
	}
	t.past = past{} // the chain has gone on: a second pass begins at its beginning
	t.keep = 0
	p.Bytes = w.bytes
	p.Whole = 0
	if n := len(p.Chain); n > 0 {
		p.Whole = p.Chain[n-1].Fingerprint
	}
}

// raw makes the chain of a body that was not understood.
func (p *Prompt) raw(body []byte) {
	if len(body) == 0 {
		return
	}
	if len(body) > math.MaxInt32 {
		body = body[:math.MaxInt32]
	}
	p.begin(tagRaw)
	p.write(body)
	p.point(true, false)
	p.First = 1
}

// parts makes the chain of a prompt that was understood. That of the first done turns and all before them is there already.
func (p *Prompt) parts(body []byte, done int) {
	lists := [4][]part{p.tools, p.functions, p.system, p.turns}
	heads := 0 // leading turns that belong to the head
	for p.Family != Completions && heads < len(p.turns) && p.turns[heads].role == roleHead {
		heads++
	}
	left := len(p.tools) + len(p.functions) + len(p.system) + heads // parts until the head ends
	parts := left - heads + len(p.turns)
	user := -1 // the first user message
	for i := range p.turns {
		if p.turns[i].role == roleUser {
			user = i
			break
		}
	}
	for l, list := range lists {
		for i := range list {
			if done > 0 && (l < 3 || i < done) {
				left--
				parts--
				continue
			}
			p.part(body, &list[i], l)
			left--
			parts--
			first := l == 3 && i == user
			p.point(left == 0 || first || parts == 0, left == 0 || first)
			if left == 0 {
				p.Head = len(p.Chain)
			}
			if first {
				p.First = len(p.Chain)
			}
			if l == 3 && i+1 == p.trace.keep && len(p.Chain) < densePoints {
				w := &p.writer
				p.trace.past = past{p.trace.scope, i + 1, len(p.Chain), p.Head, p.First, w.bytes, w.kept, w.d}
			}
		}
	}
	if p.Family == Completions {
		p.First = 1
	}
	if p.First == 0 {
		p.First = len(p.Chain)
	}
}

// part feeds one part.
func (p *Prompt) part(body []byte, pt *part, list int) {
	switch {
	case list < 2:
		p.begin(tagTool)
	case list == 2:
		p.begin(tagSystem)
	case pt.ids:
		p.begin(tagIDs)
		p.writeIDs(body, pt)
		return
	default:
		p.begin(tagTurn)
	}
	if pt.bare {
		p.piece([]byte(bareBefore))
	}
	at := pt.start
	for _, c := range p.cuts[pt.cuts:pt.cutEnd] {
		p.span(body[at:c.start], pt.spaced)
		at = c.end
	}
	p.span(body[at:pt.end], pt.spaced)
	if pt.bare {
		p.piece([]byte(bareAfter))
	}
	p.flush()
}

// writeIDs feeds a list of token ids, with points at its marks instead of strides.
func (p *Prompt) writeIDs(body []byte, pt *part) {
	p.writer.next = math.MaxInt
	at := pt.start
	for _, m := range p.marks[pt.mark:pt.marks] {
		p.ids(body[at:m], pt.spaced)
		p.point(false, false)
		at = m
	}
	p.ids(body[at:pt.end], pt.spaced)
}

func (p *Prompt) ids(b []byte, spaced bool) {
	if spaced {
		p.compact(b)
	} else {
		p.write(b)
	}
}

// span feeds a range of a part that begins and ends outside strings, without the white space between its tokens.
func (p *Prompt) span(b []byte, spaced bool) {
	if !spaced {
		p.piece(b)
		return
	}
	s := scanner{body: b}
	at := 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			if i = s.str(i); i < 0 {
				i = len(b) // cannot be: Scan has passed this string
			}
		case c <= ' ':
			p.piece(b[at:i])
			for i++; i < len(b) && b[i] <= ' '; i++ {
			}
			at = i
		default:
			i++
		}
	}
	p.piece(b[at:])
}

// compact feeds a range of a list of token ids without its blanks.
func (p *Prompt) compact(b []byte) {
	small := p.writer.small[:smallCap]
	for len(b) > 0 {
		chunk := b[:min(len(b), smallCap)]
		b = b[len(chunk):]
		n := 0
		for _, c := range chunk {
			small[n] = c
			n += int((uint32(' ') - uint32(c)) >> 31) // 1 when c is no blank; a branch here would be mispredicted
		}
		p.write(small[:n])
	}
}

// piece feeds bytes, collecting small ones.
func (p *Prompt) piece(b []byte) {
	if w := &p.writer; len(b) < 128 && len(b) <= smallCap-len(w.small) {
		w.small = append(w.small, b...)
		return
	}
	p.flush()
	p.write(b)
}

func (p *Prompt) flush() {
	if w := &p.writer; len(w.small) > 0 {
		p.write(w.small)
		w.small = w.small[:0]
	}
}

// begin starts a part: strides are counted from here.
func (p *Prompt) begin(tag string) {
	w := &p.writer
	w.d.WriteString(tag)
	w.next = w.bytes + stride(w.bytes)
}

// write feeds the digest and sets a point wherever a stride ends.
func (p *Prompt) write(b []byte) {
	w := &p.writer
	for room := w.next - w.bytes; len(b) >= room; room = w.next - w.bytes {
		w.d.Write(b[:room])
		w.bytes += room
		b = b[room:]
		p.point(false, false)
		w.next = w.bytes + stride(w.bytes)
	}
	w.d.Write(b)
	w.bytes += len(b)
}

// stride is the distance to the next point inside a part, in canonical bytes: 4,096 in the first 2 MiB of a prompt, then
// 1/128 to 1/64 of what lies before.
func stride(at int) int {
	if at < 2<<20 {
		return 4096
	}
	return 1 << (bits.Len(uint(at)) - 8)
}

// densePoints is how many points a chain takes as they come. Further ones must lie 1/32 of the prompt behind the last;
// as a prompt has less than 2^31 bytes, no more than 32·ln(2^31/densePoints) = 453 of these exist.
const densePoints = 1536

// point reads the digest at the current position. A forced point is set however near the last one it is; a marked one is
// kept whatever the gap.
func (p *Prompt) point(force, mark bool) {
	w := &p.writer
	if n := len(p.Chain); n > 0 {
		last := &p.Chain[n-1]
		if int(last.Bytes) == w.bytes {
			if mark && !last.Keep {
				last.Keep, w.kept = true, w.bytes
			}
			return
		}
		if n >= densePoints && !force && w.bytes-int(last.Bytes) < w.bytes/32 {
			return
		}
	}
	keep := mark || w.bytes-w.kept >= keepGap(w.bytes)
	if keep {
		w.kept = w.bytes
	}
	p.Chain = append(p.Chain, Point{w.d.Sum64(), int32(w.bytes), keep})
}

// keepGap is how far behind the last kept point the next one must lie: 1/32 of the prompt before it, at least 64 and at
// most 4,096 bytes. The end of the head and of the first user message are kept in any case. It depends on the prefix
// alone, so two prompts keep the same points of a prefix they share.
func keepGap(bytes int) int {
	return min(max(bytes/32, 64), 4096)
}
