package gossip

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/warmring/warmring/ring"
)

// Read reads a message into m. It never panics, and what it takes is bounded by what it is given.
func (m *Message) Read(b []byte) error {
	m.reset()
	if len(b) == 0 || len(b) > maxMessage {
		return fmt.Errorf("%w: %d bytes", ErrGarbage, len(b))
	}
	if b[0] != version {
		return fmt.Errorf("%w: %d", ErrVersion, b[0])
	}
	for b = b[1:]; len(b) > 0; {
		s := section(b[0])
		n, size := binary.Uvarint(b[1:])
		if size <= 0 || n > uint64(len(b)-1-size) {
			return fmt.Errorf("%w: section %d is cut", ErrGarbage, s)
		}
		content := b[1+size : 1+size+int(n)]
		b = b[1+size+int(n):]
		if !m.readSection(s, content) {
			return fmt.Errorf("%w: section %d", ErrGarbage, s)
		}
	}
	return nil
}

func (m *Message) readSection(s section, b []byte) (ok bool) {
	switch s {
	case sectionSender:
		r := reader{b: b}
		m.Sender, m.Sequence = r.uint32(), r.uvarint()
		m.Interval = time.Duration(min(r.uvarint(), 3_600_000)) * time.Millisecond
		return !r.failed
	case sectionEntries:
		m.Entries, ok = readRecords(m.Entries, b, readEntry)
	case sectionDirect:
		m.Direct, ok = readRecords(m.Direct, b, readEntry)
	case sectionReply:
		m.Reply, ok = readRecords(m.Reply, b, readEntry)
	case sectionLoads:
		m.HasLoads = true
		m.Loads, ok = readRecords(m.Loads, b, readLoad)
	case sectionLoud:
		m.Loud, ok = readRecords(m.Loud, b, readLoad)
	case sectionAsk:
		r := reader{b: b}
		m.Ask = Ask{ID: r.uint64(), Engine: r.uint32(), Request: r.uint64()}
		m.Ask.Over = len(r.b) > 0 && r.b[0] == 1
		return !r.failed
	case sectionAnswer:
		r := reader{b: b}
		m.AnswerID, m.Answer = r.uint64(), Answer(r.byte())
		return !r.failed
	case sectionHashes:
		for ; len(b) >= 4; b = b[4:] {
			m.Hashes = append(m.Hashes, binary.LittleEndian.Uint32(b))
		}
		return len(b) == 0
	case sectionSights:
		for ; len(b) >= 5; b = b[5:] {
			m.Sights = append(m.Sights, Sight{binary.LittleEndian.Uint32(b), ring.State(b[4])})
		}
		return len(b) == 0
	case sectionReadiness:
		r := reader{b: b}
		m.Readiness = Readiness(r.byte())
		return !r.failed
	case sectionDigests:
		m.Digests, ok = readRecords(m.Digests, b, readDigest)
	case sectionSpeeds:
		m.Speeds, ok = readRecords(m.Speeds, b, readSpeed)
	default:
		return true
	}
	return ok
}

// readRecords appends what record reads of each record to a list. A record has its length in front, so that what a later version adds
// at its end is passed over. record answers false for one that makes no sense.
func readRecords[T any](list []T, b []byte, record func(*reader) (T, bool)) ([]T, bool) {
	for len(b) > 0 {
		n := int(b[0])
		if n >= len(b) {
			return list, false
		}
		r := reader{b: b[1 : 1+n]}
		b = b[1+n:]
		v, ok := record(&r)
		if r.failed || !ok {
			return list, false
		}
		list = append(list, v)
	}
	return list, true
}

// readEntry reads an entry. One of no kind is a fault.
func readEntry(r *reader) (Entry, bool) {
	e := Entry{Key: r.uint64(), Value: r.uint32(), Version: r.uint32(), Node: r.uint32(), Kind: Kind(r.byte()), Flags: r.byte(), Size: r.byte()}
	e.Life = time.Duration(min(r.uvarint(), uint64(maxLife/lifeUnit))) * lifeUnit
	return e, e.Kind != 0
}

func readLoad(r *reader) (ring.Load, bool) {
	l := ring.Load{Engine: r.uint32()}
	l.Waiting = int64(min(r.uvarint(), 1<<40)) // sums of thousands stay within 64 bits
	l.Queued, l.Running = int(min(r.uvarint(), math.MaxInt32)), int(min(r.uvarint(), math.MaxInt32))
	return l, true
}

// reader takes numbers off the front of bytes; after a failure all are 0.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.failed, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.failed, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

// int63 is a uvarint that fits an int64; greater ones are cut.
func (r *reader) int63() int64 { return int64(min(r.uvarint(), math.MaxInt64)) }
