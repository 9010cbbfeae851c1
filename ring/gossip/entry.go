package gossip

import (
	"time"

	"github.com/warmring/warmring/ring"
)

// Kind is what an entry is about. Kinds that a version does not know are kept and passed on, but not acted upon.
type Kind uint8

// The kinds.
const (
	Session Kind = 1 // Key is a session's key, Value the engine that it lives on
	Tail    Kind = 2 // Key is the fingerprint at which a session's last prompt ended, Value its engine
	Drain   Kind = 3 // Key is an engine, Value 1 if an operator has drained it, else 0
	Hint    Kind = 4 // Key is an engine, Value the state that somebody has seen it in: a hint to look at it
	Goodbye Kind = 5 // Key is a member that leaves by its own will
)

// FlagHome is set in Session entries of sessions that live where the ring puts them: proxies that miss one agree all the same. Bits that a
// version does not know are kept and passed on; the lowest is left free, as earlier ones may set it.
const FlagHome uint8 = 1 << 1

// Entry is one versioned fact. It travels with what is left of its life, and is kept with the time of its end on its keeper's own
// clock: clocks are never compared.
type Entry struct {
	Key     uint64
	Value   uint32
	Version uint32 // seconds of the writer's wall clock, but at least one more than the version it replaced
	Node    uint32 // the writer: breaks ties
	Kind    Kind
	Flags   uint8
	Size    uint8 // ring.SizeClass of the session's context
	Life    time.Duration
}

// id is what an entry replaces entries of.
type id struct {
	key  uint64
	kind Kind
}

func (e *Entry) id() id { return id{e.Key, e.Kind} }

// wins tells whether e replaces other, an entry of the same id: the later version, then the greater writer. The rest is
// only there to make the order total: two entries of one writer and version that differ are a fault, and even then all keep
// the same one.
func (e *Entry) wins(other *Entry) bool {
	switch {
	case e.Version != other.Version:
		return e.Version > other.Version
	case e.Node != other.Node:
		return e.Node > other.Node
	case e.Value != other.Value:
		return e.Value > other.Value
	case e.Flags != other.Flags:
		return e.Flags > other.Flags
	}
	return e.Size > other.Size
}

// worth orders entries for shedding, least first: an operator's word is never shed, a placement by what it would cost to miss it.
// A session at home is found without an entry, only less certainly; a tail is void with the next turn.
func (e *Entry) worth() uint8 {
	switch {
	case e.Kind == Drain:
		return 255
	case e.Kind == Hint, e.Kind == Goodbye:
		return 254
	case e.Kind == Tail, e.Flags&FlagHome != 0:
		return e.Size / 2
	}
	return min(e.Size, 127)
}

// binding is an entry in the Placer's words.
func (e *Entry) binding() ring.Binding {
	return ring.Binding{
		Key: e.Key, Engine: e.Value, Tokens: ring.ClassTokens(e.Size), Life: e.Life,
		Tail: e.Kind == Tail, Home: e.Flags&FlagHome != 0,
	}
}

// entryOf is the reverse; version and writer are the Book's to set.
func entryOf(b *ring.Binding) Entry {
	e := Entry{Key: b.Key, Value: b.Engine, Kind: Session, Size: ring.SizeClass(b.Tokens), Life: b.Life}
	if b.Tail {
		e.Kind = Tail
	}
	if b.Home {
		e.Flags |= FlagHome
	}
	return e
}
