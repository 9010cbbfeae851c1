package gossip

import (
	"encoding/binary"
	"strings"
)

// Where a cluster has no keys, whoever reaches its port is read by memberlist, which believes the sizes that are announced to it: a header
// of 40 bytes makes it hold 130 MB. So the beginning of what comes is looked at before. Only the shape counts; whether the content is right
// is memberlist's to say.

// Message types of memberlist, the first byte of what it sends.
const (
	typeState    = 6 // push/pull
	typeCompound = 7
	typeUser     = 8
	typeCompress = 9 // nobody here sends it
	typeEncrypt  = 10
	typeCRC      = 12
	typeLabel    = 244
)

const (
	maxNodes = 2048 // members that a state may announce
	maxHead  = 512  // bytes that are looked at, at most: a label and a header have some 300
	maxNest  = 2    // packets in packets
)

// verdict on the beginning of a stream.
type verdict uint8

const (
	more   verdict = iota // too little came to tell
	pass                  // harmless, or memberlist refuses it before it reads on
	refuse                // it announces too much, or is in a form that nobody here sends
)

// streamShape judges the beginning of a stream. secret: members have keys, so what is not encrypted is refused by memberlist at once.
func streamShape(b []byte, secret bool) verdict {
	if len(b) == 0 {
		return more
	}
	if b[0] == typeLabel {
		if len(b) < 2 || len(b) < 2+int(b[1])+1 {
			return more
		}
		b = b[2+int(b[1]):]
	}
	kind, rest := b[0], b[1:]
	switch {
	case kind == typeEncrypt:
		if len(rest) < 4 {
			return more
		}
		if binary.BigEndian.Uint32(rest) > maxStream {
			return refuse
		}
		return pass
	case secret:
		return pass
	case kind == typeCompress:
		return refuse
	case kind == typeState, kind == typeUser:
		return headerShape(rest)
	}
	return pass
}

// headerShape judges a msgpack map of small numbers, as memberlist's headers are.
func headerShape(b []byte) verdict {
	if len(b) == 0 {
		return more
	}
	if b[0]&0xf0 != 0x80 { // a map of up to 15
		return refuse
	}
	fields := int(b[0] & 0x0f)
	b = b[1:]
	for range fields {
		if len(b) == 0 {
			return more
		}
		if b[0]&0xe0 != 0xa0 { // text of up to 31 bytes
			return refuse
		}
		n := int(b[0] & 0x1f)
		if len(b) < 1+n+1 {
			return more
		}
		name := string(b[1 : 1+n])
		b = b[1+n:]
		limit := uint64(maxStream)
		if strings.EqualFold(name, "Nodes") {
			limit = maxNodes
		}
		value, size, v := small(b)
		if v != pass {
			return v
		}
		if value > limit {
			return refuse
		}
		b = b[size:]
	}
	return pass
}

// small reads a msgpack number that is not negative, or a truth value.
func small(b []byte) (value uint64, size int, v verdict) {
	kind := b[0]
	width := 0
	switch {
	case kind < 0x80:
		return uint64(kind), 1, pass
	case kind == 0xc2, kind == 0xc3:
		return 0, 1, pass
	case kind >= 0xcc && kind <= 0xcf: // unsigned, of 1, 2, 4 or 8 bytes
		width = 1 << (kind - 0xcc)
	case kind >= 0xd0 && kind <= 0xd3: // signed: a negative one is a great one here
		width = 1 << (kind - 0xd0)
	default:
		return 0, 0, refuse
	}
	if len(b) < 1+width {
		return 0, 0, more
	}
	for _, digit := range b[1 : 1+width] {
		value = value<<8 | uint64(digit)
	}
	if kind >= 0xd0 && b[1]&0x80 != 0 {
		return 0, 0, refuse
	}
	return value, 1 + width, pass
}

// packetShape tells whether a packet, without its label, may be read: it has nothing compressed in it, at any depth.
func packetShape(b []byte, depth int) bool {
	if len(b) > 5 && b[0] == typeCRC && depth == 0 {
		b = b[5:]
	}
	if len(b) == 0 {
		return true
	}
	switch b[0] {
	case typeCompress:
		return false
	case typeCompound:
		if depth == maxNest {
			return false
		}
		return partsShape(b[1:], depth+1)
	}
	return true
}

func partsShape(b []byte, depth int) bool {
	if len(b) == 0 {
		return true
	}
	n := int(b[0])
	lengths := b[1:]
	if len(lengths) < 2*n {
		return true // memberlist reads nothing of it
	}
	b = lengths[2*n:]
	for i := range n {
		size := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if size > len(b) {
			return true // it reads up to here
		}
		if !packetShape(b[:size], depth) {
			return false
		}
		b = b[size:]
	}
	return true
}
