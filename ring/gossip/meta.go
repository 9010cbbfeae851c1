package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	Weights        uint32 // of the engines with their names; 0 = not told
}

const metaFixed = 1 + 1 + 1 + 2 + 4 + 4 + 1

func (m *meta) bytes() []byte {
	program := m.Program[:min(len(m.Program), 64)]
	b := []byte{1, m.Oldest, m.Newest}
	b = binary.LittleEndian.AppendUint16(b, m.Engines)
	b = binary.LittleEndian.AppendUint32(b, m.EnginesHash)
	b = binary.LittleEndian.AppendUint32(b, m.Settings)
	b = append(b, byte(len(program)))
	b = append(b, program...)
	return binary.LittleEndian.AppendUint32(b, m.Weights)
}

func readMeta(b []byte) (m meta, err error) {
	if len(b) < metaFixed || b[0] != 1 || len(b) < metaFixed+int(b[metaFixed-1]) {
		return m, errors.New("what it tells about itself cannot be read")
	}
	end := metaFixed + int(b[metaFixed-1])
	m = meta{
		Oldest: b[1], Newest: b[2], Engines: binary.LittleEndian.Uint16(b[3:]), EnginesHash: binary.LittleEndian.Uint32(b[5:]),
		Settings: binary.LittleEndian.Uint32(b[9:]), Program: strings.ToValidUTF8(string(b[metaFixed:end]), "?"),
	}
	if len(b) >= end+4 {
		m.Weights = binary.LittleEndian.Uint32(b[end:])
	}
	return m, nil
}

// differences are what another member and this one do not have in common, in words. Weights can be compared only where the engines are
// the same.
func (m *meta) differences(other *meta) (list []string) {
	if other.EnginesHash != m.EnginesHash {
		list = append(list, fmt.Sprintf("it has another list of engines (%d, here are %d): sessions of engines that only one of both knows are placed by each alone", other.Engines, m.Engines))
	} else if other.Weights != m.Weights && other.Weights != 0 && m.Weights != 0 {
		list = append(list, "its engines have other weights: homes of sessions differ")
	}
	if other.Settings != m.Settings {
		list = append(list, "settings that placement depends on differ (identity.secret, identity.sources or routing.virtual_nodes): sessions are not recognised across")
	}
	if other.Newest < version || other.Oldest > version {
		list = append(list, "it does not read this member's messages")
	}
	return list
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
