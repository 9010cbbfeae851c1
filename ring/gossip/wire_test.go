package gossip

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmring/warmring/ring"
)

func anyMessage() *rapid.Generator[Message] {
	return rapid.Custom(func(t *rapid.T) Message {
		m := Message{Sender: rapid.Uint32().Draw(t, "sender")}
		if m.Sender != 0 {
			m.Sequence = rapid.Uint64().Draw(t, "sequence")
			m.Interval = time.Duration(rapid.IntRange(0, 3_600_000).Draw(t, "interval")) * time.Millisecond
		}
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
			return Entry{
				Key: rapid.Uint64().Draw(t, "key"), Value: rapid.Uint32().Draw(t, "value"), Version: rapid.Uint32().Draw(t, "version"),
				Node: rapid.Uint32().Draw(t, "node"), Kind: Kind(rapid.IntRange(1, 255).Draw(t, "kind")), Flags: rapid.Uint8().Draw(t, "flags"),
				Size: rapid.Uint8().Draw(t, "size"), Life: time.Duration(rapid.Int64Range(0, int64(maxLife/lifeUnit)).Draw(t, "life")) * lifeUnit,
			}
		}), 0, 50)
		loads := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ring.Load {
			return ring.Load{
				Engine: rapid.Uint32().Draw(t, "engine"), Waiting: rapid.Int64Range(0, 1<<40).Draw(t, "waiting"),
				Queued: rapid.IntRange(0, 1<<30).Draw(t, "queued"), Running: rapid.IntRange(0, 1<<30).Draw(t, "running"),
			}
		}), 0, 20)
		m.Entries, m.Direct, m.Reply = entries.Draw(t, "entries"), entries.Draw(t, "direct"), entries.Draw(t, "reply")
		m.Loud = loads.Draw(t, "loud")
		if m.HasLoads = rapid.Bool().Draw(t, "has loads"); m.HasLoads {
			m.Loads = loads.Draw(t, "loads")
		}
		if id := rapid.Uint64().Draw(t, "ask"); id != 0 {
			m.Ask = Ask{ID: id, Engine: rapid.Uint32().Draw(t, "engine"), Request: rapid.Uint64().Draw(t, "request"), Over: rapid.Bool().Draw(t, "over")}
		}
		if m.AnswerID = rapid.Uint64().Draw(t, "answer"); m.AnswerID != 0 {
			m.Answer = Answer(rapid.Uint8().Draw(t, "what"))
		}
		m.Hashes = rapid.SliceOfN(rapid.Uint32(), 0, 20).Draw(t, "hashes")
		m.Sights = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sight {
			return Sight{rapid.Uint32().Draw(t, "engine"), ring.State(rapid.Uint8().Draw(t, "state"))}
		}), 0, 20).Draw(t, "sights")
		m.Digests = rapid.SliceOfN(anyDigest(), 0, 20).Draw(t, "digests")
		m.Speeds = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ring.Speed {
			return ring.Speed{Engine: rapid.Uint32().Draw(t, "engine"), PerSecond: rapid.IntRange(0, 1<<31-1).Draw(t, "rate")}
		}), 0, 20).Draw(t, "speeds")
		m.Readiness = Readiness(rapid.Uint8().Draw(t, "readiness"))
		return m
	})
}

// canonical makes empty slices alike.
func canonical(m Message) Message {
	v := reflect.ValueOf(&m).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.SetZero()
		}
	}
	return m
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage().Draw(t, "message")
		var got Message
		if err := got.Read(m.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(canonical(got), canonical(m)) {
			t.Fatalf("wrote %+v\nread  %+v", m, got)
		}
	})
}

// A later version may add sections, and fields at the end of records.
func TestWhatIsNotKnownIsSkipped(t *testing.T) {
	m := Message{Sender: 7, Sequence: 9, Entries: []Entry{{Key: 1, Value: 2, Version: 3, Node: 4, Kind: 77, Life: time.Second}}}
	b := m.Append(nil)
	b = append(b, 200, 3, 'n', 'e', 'w')
	record := appendEntry(nil, &Entry{Key: 5, Value: 6, Version: 7, Node: 8, Kind: Session, Life: time.Second})
	record = append(record, 1, 2, 3)
	record[0] += 3
	b = append(b, byte(sectionDirect), byte(len(record)))
	b = append(b, record...)
	var got Message
	if err := got.Read(b); err != nil {
		t.Fatal(err)
	}
	if len(got.Entries) != 1 || got.Entries[0].Kind != 77 || len(got.Direct) != 1 || got.Direct[0].Key != 5 || got.Sender != 7 {
		t.Errorf("%+v", got)
	}
	b[0] = version + 1
	if err := got.Read(b); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

func TestAnEntryTakesAboutTwentySixBytes(t *testing.T) {
	e := Entry{Key: 1 << 63, Value: 1 << 31, Version: 1 << 31, Node: 1 << 31, Kind: Session, Life: 24 * time.Hour}
	if n := len(appendEntry(nil, &e)); n > 28 {
		t.Errorf("%d bytes", n)
	}
	e.Life = maxLife
	if n := len(appendEntry(nil, &e)); n > entrySize {
		t.Errorf("%d bytes are more than is reckoned with", n)
	}
	d := Digest{Age: time.Hour, Running: math.MaxInt32 - 1, Waiting: math.MaxInt32 - 1, Usage: 1000, KVTokens: math.MaxInt64, Start: math.MaxInt32, Work: math.MaxInt64 - 1}
	if n := len(appendDigests(nil, []Digest{d})); n > digestSize {
		t.Errorf("a digest takes %d bytes", n)
	}
	l := ring.Load{Engine: 1 << 31, Waiting: 1 << 40, Queued: 1 << 20, Running: 1 << 20}
	if n := len(appendLoads(nil, []ring.Load{l})); n > loadSize {
		t.Errorf("a load takes %d bytes", n)
	}
}

func FuzzRead(f *testing.F) {
	m := Message{
		Sender: 7, Sequence: 9, Interval: time.Second, HasLoads: true, Loads: []ring.Load{{Engine: 1, Waiting: 2, Queued: 3, Running: 4}},
		Entries: []Entry{{Key: 1, Value: 2, Version: 3, Node: 4, Kind: Session, Size: 9, Life: time.Hour}}, Ask: Ask{1, 2, 3, true}, AnswerID: 4,
		Hashes: []uint32{1, 2}, Sights: []Sight{{1, ring.Down}}, Digests: []Digest{{Engine: 1, Reader: 2, Running: -1, Waiting: 4, Usage: 5, Work: 6}}, Speeds: []ring.Speed{{Engine: 1, PerSecond: 2}},
	}
	f.Add(m.Append(nil))
	f.Add([]byte{version})
	f.Add([]byte{version, byte(sectionEntries), 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if m.Read(b) != nil {
			return
		}
		if err := again.Read(m.Append(nil)); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		book := NewBook(1, 64)
		loads := newLoads()
		for _, e := range m.Entries {
			book.Merge(1, e)
		}
		loads.take(1, &m)
	})
}

func FuzzReadMeta(f *testing.F) {
	f.Add((&meta{Oldest: 1, Newest: 1, Engines: 3, Program: "x"}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := readMeta(b); err == nil && len(m.Program) > 255*3 {
			t.Error("long")
		}
	})
}

func TestSilentMembersAreUnknownAndLateReportsAreLeft(t *testing.T) {
	l := newLoads()
	tell := func(at time.Duration, member uint32, sequence uint64, full bool, list ...ring.Load) []ring.Load {
		m := Message{Sender: member, Sequence: sequence, Interval: 500 * time.Millisecond, HasLoads: full}
		if full {
			m.Loads = list
		} else {
			m.Loud = list
		}
		return l.take(int64(at), &m)
	}
	load := func(engine uint32, waiting int64) ring.Load {
		return ring.Load{Engine: engine, Waiting: waiting, Queued: 1}
	}
	tell(0, 1, 1, true, load(7, 100), load(8, 50))
	if got := tell(0, 2, 1, true, load(7, 1000)); len(got) != 1 || got[0].Waiting != 1100 || got[0].Queued != 2 {
		t.Errorf("sum %+v", got)
	}
	if got := tell(time.Second, 1, 3, false, load(7, 300)); len(got) != 1 || got[0].Waiting != 1300 {
		t.Errorf("a loud report: %+v", got)
	}
	if got := tell(time.Second, 1, 2, true); len(got) != 1 || got[0] != (ring.Load{Engine: 8}) {
		t.Errorf("a report that was overtaken by what was said of another engine changed %+v", got)
	}
	if got := tell(time.Second, 1, 2, true, load(8, 70)); got != nil {
		t.Errorf("a report that was here before changed %+v", got)
	}
	if got := tell(time.Second, 2, 2, true); len(got) != 1 || got[0].Waiting != 300 {
		t.Errorf("a member without load: %+v", got)
	}
	if got := l.age(int64(2900 * time.Millisecond)); len(got) != 0 {
		t.Errorf("aged too early: %+v", got)
	}
	got := l.age(int64(3100 * time.Millisecond))
	if len(got) != 1 || got[0] != (ring.Load{Engine: 7}) {
		t.Errorf("a silent member still counts: %+v", got)
	}
	if len(l.forget(1)) != 0 {
		t.Error("a silent member's loads are taken off twice")
	}
}
