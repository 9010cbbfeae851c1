package engines

import "fmt"

// dechunker takes the chunked transfer coding off a byte stream, in place and in
// pieces of any size. It keeps 16 bytes of state and no data.
//
//	size ─▶ (ext) ─▶ data ─▶ dataEnd ─▶ size …
//	  └─ 0 ─▶ (ext) ─▶ trailer ─▶ end
type dechunker struct {
	state  chunkState
	digits uint8  // of the size so far
	line   bool   // the trailer line under way is not empty
	left   uint64 // of the chunk's data
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExtension
	chunkSizeEnd
	chunkData
	chunkDataEnd
	chunkDataLF
	chunkTrailer
	chunkEnd
)

func (d *dechunker) done() bool { return d.state == chunkEnd }

// decode moves the data in p to p's front. n is its length, used how much of p
// was looked at: less than len(p) only when the body ended before.
func (d *dechunker) decode(p []byte) (n, used int, err error) {
	for i := 0; i < len(p); {
		c := p[i]
		switch d.state {
		case chunkSize:
			v := hexValue(c)
			switch {
			case v < 16:
				if d.digits == 15 {
					return n, i, fmt.Errorf("%w: chunk size too large", ErrMalformed)
				}
				d.left = d.left<<4 | uint64(v)
				d.digits++
			case d.digits == 0:
				return n, i, fmt.Errorf("%w: chunk size starts with %q", ErrMalformed, c)
			case c == '\r':
				d.state = chunkSizeEnd
			case c == '\n':
				d.sized()
			case c == ';' || c == ' ' || c == '\t':
				d.state = chunkExtension
			default:
				return n, i, fmt.Errorf("%w: chunk size contains %q", ErrMalformed, c)
			}
			i++
		case chunkExtension:
			if c == '\n' {
				return n, i, fmt.Errorf("%w: bare line feed in a chunk extension", ErrMalformed)
			}
			if c == '\r' {
				d.state = chunkSizeEnd
			}
			i++
		case chunkSizeEnd:
			if c != '\n' {
				return n, i, fmt.Errorf("%w: chunk size line ends in %q", ErrMalformed, c)
			}
			d.sized()
			i++
		case chunkData:
			m := len(p) - i
			if uint64(m) > d.left {
				m = int(d.left)
			}
			if n != i {
				copy(p[n:], p[i:i+m])
			}
			n += m
			i += m
			d.left -= uint64(m)
			if d.left == 0 {
				d.state = chunkDataEnd
			}
		case chunkDataEnd:
			switch c {
			case '\r':
				d.state = chunkDataLF
			case '\n':
				d.state, d.digits = chunkSize, 0
			default:
				return n, i, fmt.Errorf("%w: chunk is longer than its size", ErrMalformed)
			}
			i++
		case chunkDataLF:
			if c != '\n' {
				return n, i, fmt.Errorf("%w: chunk ends in %q", ErrMalformed, c)
			}
			d.state, d.digits = chunkSize, 0
			i++
		case chunkTrailer:
			switch {
			case c == '\n' && !d.line:
				d.state = chunkEnd
				return n, i + 1, nil
			case c == '\n':
				d.line = false
			case c != '\r':
				d.line = true
			}
			i++
		default:
			return n, i, nil
		}
	}
	return n, len(p), nil
}

// sized enters the data of a chunk whose size line is complete.
func (d *dechunker) sized() {
	if d.left == 0 {
		d.state, d.line = chunkTrailer, false
		return
	}
	d.state = chunkData
}

func hexValue(c byte) uint8 {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
