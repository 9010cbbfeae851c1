package ring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledger keeps the newest binding of each key as the cluster's book does: by version, then by writer. A version is the writer's wall
// clock in seconds, but more than the one it replaces.
type ledger struct {
	node    uint32
	entries map[bindingID]entryOf
}

type entryOf struct {
	Binding
	version, node uint32
	until         int64
}

func (e entryOf) wins(other entryOf) bool {
	return e.version > other.version || e.version == other.version && e.node > other.node
}

// write makes a binding the newest of its key.
func (l *ledger) write(now int64, wall uint32, b Binding) entryOf {
	n := bindingID{b.Key, b.Tail}
	e := entryOf{b, wall, l.node, now + int64(b.Life)}
	if old, ok := l.entries[n]; ok && old.version >= wall {
		e.version = old.version + 1
	}
	e.Tokens = ClassTokens(SizeClass(b.Tokens))
	l.entries[n] = e
	return e
}

func (l *ledger) merge(e entryOf) (news bool) {
	n := bindingID{e.Key, e.Tail}
	if old, ok := l.entries[n]; ok && !e.wins(old) {
		return false
	}
	l.entries[n] = e
	return true
}

// peers are Placers with ledgers. What they write reaches the others late, twice, in any order or not at all, until one asks for
// all that another knows.
type peers struct {
	t      *rapid.T
	now    int64
	all    []*Placer
	books  []*ledger
	skew   []int64 // of their wall clocks, seconds
	flying []flight
}

type flight struct {
	to    int
	entry entryOf
}

func newPeers(t *rapid.T, n int, skew func(i int) int64, engines []Engine) *peers {
	ps := &peers{t: t, now: int64(time.Hour)}
	for i := range n {
		p := New(Options{})
		p.SetEngines(ps.now, engines)
		p.Share(uint64(i+1), nil)
		ps.all = append(ps.all, p)
		ps.books = append(ps.books, &ledger{node: uint32(n - i), entries: map[bindingID]entryOf{}})
		ps.skew = append(ps.skew, skew(i))
	}
	return ps
}

// wall is what a peer's wall clock shows.
func (ps *peers) wall(i int) uint32 {
	return uint32(1_800_000_000 + ps.now/int64(time.Second) + ps.skew[i])
}

// collect writes a peer's news into its ledger and sends them off.
func (ps *peers) collect(i int) {
	bindings, _ := ps.all[i].Collect(nil, nil)
	for _, b := range bindings {
		e := ps.books[i].write(ps.now, ps.wall(i), b)
		for to := range ps.all {
			if to != i {
				ps.flying = append(ps.flying, flight{to, e})
			}
		}
	}
}

// deliver gives a peer an entry.
func (ps *peers) deliver(to int, e entryOf) {
	if ps.books[to].merge(e) {
		e.Life = time.Duration(e.until - ps.now)
		ps.all[to].Import(ps.now, []Binding{e.Binding})
	}
}

// pull gives a peer all that another knows, in any order.
func (ps *peers) pull(from, to int) {
	var list []entryOf
	for _, e := range ps.books[from].entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entryOf) int { // maps have an order of their own
		if a.Key != b.Key {
			return int(a.Key>>33) - int(b.Key>>33)
		}
		return 0
	})
	for _, e := range list {
		ps.deliver(to, e)
	}
}

// where is what a peer believes of a key.
func (ps *peers) where(i int, key uint64) string {
	p := ps.all[i]
	if s := p.sessions.find(key); s != none {
		if e := p.engineOf(p.sessions.all.at(s).engine); e != nil {
			return e.Name
		}
		return "gone"
	}
	if s := p.share.away.alive(key, false, p.now); s != nil {
		return p.engineOf(s.engine).Name
	}
	return ""
}

// agree fails unless all peers hold the same entries and believe of every session's key what these say.
func (ps *peers) agree() {
	for n, e := range ps.books[0].entries {
		if n.tail {
			continue
		}
		for i := range ps.all {
			if other := ps.books[i].entries[n]; other != e {
				ps.t.Fatalf("the ledgers differ about %x: %+v, %+v", n.key, e, other)
			}
			want := ps.all[0].engineByID(e.Engine).Name
			if got := ps.where(i, n.key); got != want {
				ps.t.Fatalf("peer %d believes that %x lives on %q, all were told %q", i, n.key, got, want)
			}
		}
	}
	for i, p := range ps.all {
		if err := p.recount(); err != nil {
			ps.t.Fatalf("peer %d: %v", i, err)
		}
	}
}

// Whatever comes under an id (its own next turns, compactions, new conversations, sub-agents that use their parent's id), at whichever
// proxies, in whatever order and number the news of it arrives or is lost: once everybody has been told everything, all believe the same
// of every key. Clocks may be five minutes apart.
func TestAllProxiesEndWithTheSameBindings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "proxies")
		ps := newPeers(t, n, func(int) int64 { return int64(rapid.IntRange(-300, 300).Draw(t, "skew")) }, fleet(4, 400_000))
		var histories [3][]*talk // of each id
		for id := range histories {
			for h := range 2 {
				histories[id] = append(histories[id], begin(1, 20_000, uint64(id*10+h), 3000))
			}
		}
		var open []*Charge
		for step := range rapid.IntRange(5, 60).Draw(t, "steps") {
			ps.now += int64(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			i := rapid.IntRange(0, n-1).Draw(t, "proxy")
			switch rapid.SampledFrom([]string{"turn", "turn", "turn", "compaction", "collect", "collect", "arrives", "arrives", "twice", "lost", "pull", "end"}).Draw(t, "what") {
			case "turn", "compaction":
				id := rapid.IntRange(0, len(histories)-1).Draw(t, "id")
				h := rapid.IntRange(0, len(histories[id])-1).Draw(t, "history")
				c := histories[id][h]
				c.say(uint64(step), rapid.IntRange(500, 60_000).Draw(t, "said"))
				if rapid.IntRange(0, 5).Draw(t, "new") == 0 {
					c = begin(1, 20_000, uint64(1000+step), 9000)
					histories[id][h] = c
				}
				turn := Turn{Now: ps.now, Session: uint64(id + 1), Prompt: c.prompt()}
				if rapid.IntRange(0, 9).Draw(t, "failed") == 0 {
					turn.Exclude = []string{fmt.Sprintf("e%d", rapid.IntRange(0, 3).Draw(t, "engine"))}
				}
				var d Decision
				ch, err := ps.all[i].Place(&turn, &d)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, ch)
			case "collect":
				ps.collect(i)
			case "arrives", "twice", "lost":
				if len(ps.flying) == 0 {
					continue
				}
				at := rapid.IntRange(0, len(ps.flying)-1).Draw(t, "which")
				f := ps.flying[at]
				switch rapid.IntRange(0, 3).Draw(t, "fate") {
				case 0: // it is lost
					ps.flying = slices.Delete(ps.flying, at, at+1)
				case 1: // it arrives, and will once more
					ps.deliver(f.to, f.entry)
				default:
					ps.deliver(f.to, f.entry)
					ps.flying = slices.Delete(ps.flying, at, at+1)
				}
			case "pull":
				if from := rapid.IntRange(0, n-1).Draw(t, "from"); from != i {
					ps.pull(from, i)
				}
			case "end":
				if len(open) > 0 {
					open[0].FirstToken(ps.now)
					open[0].Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
					open = open[1:]
				}
			}
		}
		for i := range n {
			ps.collect(i)
		}
		// Much was lost: in the end all ask all for everything.
		for range 2 {
			for from := range n {
				for to := range n {
					if from != to {
						ps.pull(from, to)
					}
				}
			}
		}
		ps.agree()
	})
}

// Who knows where a session is and moves it is believed by all, however wrong its clock or theirs: versions go on from what they
// replace.
func TestMovesAreFollowedWhateverTheClocksShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "proxies")
		ps := newPeers(t, n, func(int) int64 { return int64(rapid.IntRange(-300, 300).Draw(t, "skew")) }, fleet(4, 20_000_000))
		c := begin(1, 20_000, 5, 3000)
		at := ""
		for step := range rapid.IntRange(2, 20).Draw(t, "moves") {
			ps.now += int64(time.Duration(rapid.IntRange(0, 5000).Draw(t, "pause")) * time.Millisecond)
			i := rapid.IntRange(0, n-1).Draw(t, "proxy")
			turn := Turn{Now: ps.now, Session: 7, Prompt: c.say(uint64(step), 3000).prompt()}
			if at != "" {
				turn.Exclude = []string{at} // it has just failed
			}
			var d Decision
			ch, err := ps.all[i].Place(&turn, &d)
			if err != nil {
				t.Fatal(err)
			}
			ch.Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
			at = d.Engine
			ps.collect(i)
			for _, f := range ps.flying {
				ps.deliver(f.to, f.entry)
			}
			ps.flying = nil
			for i := range n {
				if got := ps.where(i, 7); got != at {
					t.Fatalf("move %d: proxy %d, whose clock is %d s off, believes %q, not %q", step, i, ps.skew[i], got, at)
				}
			}
		}
		ps.agree()
	})
}
