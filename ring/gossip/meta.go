package gossip

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/warmring/warmring/ring"
)

// meta is what a member tells about itself with its membership. On the wire it is a version byte, fixed numbers and the program's
// version; bytes behind it are for later versions.
type meta struct {
	Oldest, Newest byte   // message versions it reads
	Engines        uint16 // how many it has
	EnginesHash    uint32 // of their sorted names
	Settings       uint32
	Program        string
}

const metaFixed = 1 + 1 + 1 + 2 + 4 + 4 + 1

func (m *meta) bytes() []byte {
	program := m.Program[:min(len(m.Program), 64)]
	b := []byte{1, m.Oldest, m.Newest}
	b = binary.LittleEndian.AppendUint16(b, m.Engines)
	b = binary.LittleEndian.AppendUint32(b, m.EnginesHash)
	b = binary.LittleEndian.AppendUint32(b, m.Settings)
	b = append(b, byte(len(program)))
	return append(b, program...)
}

func readMeta(b []byte) (m meta, err error) {
	if len(b) < metaFixed || b[0] != 1 || len(b) < metaFixed+int(b[metaFixed-1]) {
		return m, errors.New("what it tells about itself cannot be read")
	}
	return meta{
		Oldest: b[1], Newest: b[2], Engines: binary.LittleEndian.Uint16(b[3:]), EnginesHash: binary.LittleEndian.Uint32(b[5:]),
		Settings: binary.LittleEndian.Uint32(b[9:]), Program: strings.ToValidUTF8(string(b[metaFixed:metaFixed+int(b[metaFixed-1])]), "?"),
	}, nil
}

// hashNames is the same for the same names in any order.
func hashNames(names []string) uint32 {
	h := fnv.New32a()
	for _, name := range slices.Sorted(slices.Values(names)) {
		_, _ = h.Write([]byte(name))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum32()
}

// nodeID is a member's name on the wire, never 0.
func nodeID(name string) uint32 { return ring.EngineID("member " + name) }
