package gossip

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/warmring/warmring/ring"
)

// A message is a version byte and sections, each a number, a length and that many bytes. Lists are records, each with a length
// in front. Readers skip sections they do not know and bytes at the end of records that they do not expect, so that later
// versions can add both; the version byte changes only when that is not enough, and then nothing of the message is read.
//
//	message  = version section*
//	section  = number(1) length(uvarint) content
//	sender   = node(4) sequence(uvarint) interval in ms(uvarint)
//	entries  = { length(1) key(8) value(4) version(4) node(4) kind(1) flags(1) size(1) life in 0.1 s(uvarint) }*
//	loads    = { length(1) engine(4) waiting(uvarint) queued(uvarint) running(uvarint) }*
//	ask      = id(8) engine(4) request(8) over(1, only if so)
//	answer   = id(8) answer(1)
//	hashes   = { hash(4) }*
//	sights   = { engine(4) state(1) }*
//	digests  = { length(1) engine(4) reader(4) age in 0.1 s(uvarint) running+1(uvarint) waiting+1(uvarint) usage+1(uvarint)
//	             kv tokens(uvarint) start(uvarint) work+1(uvarint) source(1) models(4) }*
//	speeds   = { length(1) engine(4) fresh tokens per second(uvarint) }*
//	readiness = step(1)
//
// Numbers of fixed size are little endian.
const version = 1

type section byte

const (
	sectionSender    section = 1
	sectionEntries   section = 2 // spread by gossip: whoever finds news in them passes it on
	sectionDirect    section = 3 // entries sent to every member by their writer: passed on less
	sectionLoads     section = 4 // all charges of the sender
	sectionLoud      section = 5 // charges to some engines
	sectionAsk       section = 6
	sectionAnswer    section = 7
	sectionHashes    section = 8
	sectionSights    section = 9
	sectionDigests   section = 11 // what the sender has read of engines
	sectionSpeeds    section = 12
	sectionReadiness section = 13 // of the sender of a state
	sectionReply     section = 10 // entries that a comparison found missing: not passed on at all
)

// Bounds of one message, for readers: a list beyond them makes the whole message refused.
const (
	maxMessage = 8 << 20
	entrySize  = 32 // an entry on the wire, at most
	loadSize   = 24
	digestSize = 60
)

// Errors of reading.
var (
	ErrVersion = errors.New("message of another version")
	ErrGarbage = errors.New("message cannot be read")
)

// Append writes the message behind dst.
func (m *Message) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, version)
	if m.Sender != 0 {
		dst = inSection(dst, sectionSender, func(b []byte) []byte {
			b = le.AppendUint32(b, m.Sender)
			b = binary.AppendUvarint(b, m.Sequence)
			return binary.AppendUvarint(b, uint64(m.Interval.Milliseconds()))
		})
	}
	dst = appendEntries(dst, sectionEntries, m.Entries)
	dst = appendEntries(dst, sectionDirect, m.Direct)
	dst = appendEntries(dst, sectionReply, m.Reply)
	if m.HasLoads {
		dst = inSection(dst, sectionLoads, func(b []byte) []byte { return appendLoads(b, m.Loads) })
	}
	if len(m.Loud) > 0 {
		dst = inSection(dst, sectionLoud, func(b []byte) []byte { return appendLoads(b, m.Loud) })
	}
	if m.Ask.ID != 0 {
		dst = inSection(dst, sectionAsk, func(b []byte) []byte {
			b = le.AppendUint64(le.AppendUint32(le.AppendUint64(b, m.Ask.ID), m.Ask.Engine), m.Ask.Request)
			if m.Ask.Over {
				b = append(b, 1)
			}
			return b
		})
	}
	if m.AnswerID != 0 {
		dst = inSection(dst, sectionAnswer, func(b []byte) []byte { return append(le.AppendUint64(b, m.AnswerID), byte(m.Answer)) })
	}
	if len(m.Hashes) > 0 {
		dst = inSection(dst, sectionHashes, func(b []byte) []byte {
			for _, h := range m.Hashes {
				b = le.AppendUint32(b, h)
			}
			return b
		})
	}
	if len(m.Sights) > 0 {
		dst = inSection(dst, sectionSights, func(b []byte) []byte {
			for _, s := range m.Sights {
				b = append(le.AppendUint32(b, s.Engine), byte(s.State))
			}
			return b
		})
	}
	if len(m.Digests) > 0 {
		dst = inSection(dst, sectionDigests, func(b []byte) []byte { return appendDigests(b, m.Digests) })
	}
	if len(m.Speeds) > 0 {
		dst = inSection(dst, sectionSpeeds, func(b []byte) []byte { return appendSpeeds(b, m.Speeds) })
	}
	if m.Readiness != ReadinessUntold {
		dst = inSection(dst, sectionReadiness, func(b []byte) []byte { return append(b, byte(m.Readiness)) })
	}
	return dst
}

// inSection writes a section whose length is known only afterwards: four bytes are kept for it.
func inSection(dst []byte, s section, write func([]byte) []byte) []byte {
	dst = append(dst, byte(s), 0, 0, 0, 0)
	start := len(dst)
	dst = write(dst)
	n := len(dst) - start
	dst[start-4], dst[start-3], dst[start-2], dst[start-1] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)
	return dst
}

func appendEntries(dst []byte, s section, list []Entry) []byte {
	if len(list) == 0 {
		return dst
	}
	return inSection(dst, s, func(b []byte) []byte {
		for i := range list {
			b = appendEntry(b, &list[i])
		}
		return b
	})
}

func appendEntry(b []byte, e *Entry) []byte {
	le := binary.LittleEndian
	b = append(b, 0)
	start := len(b)
	b = le.AppendUint64(b, e.Key)
	b = le.AppendUint32(b, e.Value)
	b = le.AppendUint32(b, e.Version)
	b = le.AppendUint32(b, e.Node)
	b = append(b, byte(e.Kind), e.Flags, e.Size)
	b = binary.AppendUvarint(b, uint64(max(e.Life, 0)/lifeUnit))
	b[start-1] = byte(len(b) - start)
	return b
}

// lifeUnit is the unit of lives on the wire. Lives are rounded down: no copy outlives its original but by the time under way.
const lifeUnit = 100 * time.Millisecond

func appendLoads(b []byte, list []ring.Load) []byte {
	for _, l := range list {
		b = append(b, 0)
		start := len(b)
		b = binary.LittleEndian.AppendUint32(b, l.Engine)
		b = binary.AppendUvarint(b, uint64(max(l.Waiting, 0)))
		b = binary.AppendUvarint(b, uint64(max(l.Queued, 0)))
		b = binary.AppendUvarint(b, uint64(max(l.Running, 0)))
		b[start-1] = byte(len(b) - start)
	}
	return b
}
