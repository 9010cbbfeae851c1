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

// Traits are hashes of what members have in their configurations. 0 = not told, and not compared. What belongs to engines is compared
// where their names are the same.
type Traits struct {
	Settings uint32 // what members must have in common to agree on homes
	Secret   uint32 // the secret that keys session ids, where it is not among Settings. It should say so little that no guess can be confirmed by it
	Weights  uint32 // the engines' names and weights
	Models   uint32 // which models each engine is for, and aliases
	URLs     uint32 // the engines' URLs, whichever belongs to which name
	Places   uint32 // the engines' names with their URLs
}

// meta is what a member tells about itself with its membership. On the wire it is a version byte, fixed numbers, the program's
// version and hashes; bytes behind it are for later versions.
type meta struct {
	Oldest, Newest byte   // message versions it reads
	Engines        uint16 // how many it has
	EnginesHash    uint32 // of their sorted names
	Program        string
	Traits
}

// late are the traits that stand behind the program, in the order of the versions that brought them.
func (m *meta) late() []*uint32 {
	return []*uint32{&m.Weights, &m.Secret, &m.Models, &m.URLs, &m.Places}
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
	for _, trait := range m.late() {
		b = binary.LittleEndian.AppendUint32(b, *trait)
	}
	return b
}

func readMeta(b []byte) (m meta, err error) {
	if len(b) < metaFixed || b[0] != 1 || len(b) < metaFixed+int(b[metaFixed-1]) {
		return m, errors.New("what it tells about itself cannot be read")
	}
	end := metaFixed + int(b[metaFixed-1])
	m = meta{
		Oldest: b[1], Newest: b[2], Engines: binary.LittleEndian.Uint16(b[3:]), EnginesHash: binary.LittleEndian.Uint32(b[5:]),
		Program: strings.ToValidUTF8(string(b[metaFixed:end]), "?"),
	}
	m.Settings = binary.LittleEndian.Uint32(b[9:])
	rest := b[end:]
	for _, trait := range m.late() {
		if len(rest) < 4 {
			break
		}
		*trait, rest = binary.LittleEndian.Uint32(rest), rest[4:]
	}
	return m, nil
}

// differences are what another member and this one do not have in common, in words. What belongs to engines can be compared only where
// those are the same. Two members may reach the same engines by other URLs, but not by the same ones under other names.
func (m *meta) differences(other *meta) (list []string) {
	differ := func(a, b uint32) bool { return a != b && a != 0 && b != 0 }
	if other.EnginesHash != m.EnginesHash {
		list = append(list, fmt.Sprintf("it has another list of engines (%d, here are %d): sessions of engines that only one of both knows are placed by each alone", other.Engines, m.Engines))
	} else {
		if differ(other.Weights, m.Weights) {
			list = append(list, "its engines have other weights: homes of sessions differ")
		}
		if differ(other.Models, m.Models) {
			list = append(list, "its engines are for other models, or it has other aliases (models of an engine, models.alias): sessions of these models are placed by each alone")
		}
		if other.URLs == m.URLs && differ(other.Places, m.Places) {
			list = append(list, "its engines have the same URLs under other names: sessions are sent to engines that do not hold them")
		}
	}
	if other.Settings != m.Settings {
		list = append(list, "settings that placement depends on differ (identity.secret, identity.sources or routing.virtual_nodes): sessions are not recognised across")
	}
	if differ(other.Secret, m.Secret) {
		list = append(list, "identity.secret differs: sessions are not recognised across")
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
