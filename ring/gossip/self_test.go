package gossip

import (
	"testing"

	"github.com/warmring/warmring/ring"
)

// An operator's word about an engine counts for whoever gets the engine later, too, and outlives that it is taken out and put back: who
// restarts would learn it again, and be the only one.
func TestAnEngineThatAReloadBringsIsDrainedIfTheOthersSaySo(t *testing.T) {
	t.Parallel()
	names := engineNames(3)
	a := startMember(t, names, nil, nil)
	b := startMember(t, names[:2], []string{a.Address()}, nil)
	awaitMembers(t, []*proxy{a, b})
	set := func(p *proxy, names []string) {
		t.Helper()
		if err := p.SetEngines(names, Traits{}); err != nil {
			t.Fatal(err)
		}
	}
	calls := func(p *proxy, engine string) (drained, called bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		drained, called = p.drained[engine]
		delete(p.drained, engine)
		return drained, called
	}
	id := uint64(ring.EngineID("e2"))

	a.Drain("e2", true)
	eventually(t, "the word at the one that lacks the engine", func() bool { _, ok := b.book.Get(clock(), id, Drain); return ok })
	if _, called := calls(b, "e2"); called {
		t.Error("it acts upon an engine that it does not have")
	}
	set(b, names)
	if drained, called := calls(b, "e2"); !called || !drained {
		t.Error("it has the engine now, and does not drain it")
	}
	if _, called := calls(b, "e0"); called {
		t.Error("of another one nobody said anything")
	}
	set(b, names)
	if _, called := calls(b, "e2"); called {
		t.Error("a reload that leaves the engine alone drains it again")
	}

	for _, p := range []*proxy{a, b} { // out of all files, and back
		set(p, names[:2])
		set(p, names)
		if drained, called := calls(p, "e2"); !called || !drained {
			t.Errorf("%s: taken out and put back, it is not drained any more", p.name)
		}
	}

	set(b, names[:2])
	a.Drain("e2", false)
	eventually(t, "the end of the drain", func() bool { e, ok := b.book.Get(clock(), id, Drain); return ok && e.Value == 0 })
	set(b, names)
	if drained, called := calls(b, "e2"); called && drained {
		t.Error("it was put back in use while it was in no list here, and is drained all the same")
	}
}

// Who has work or places something is heard of; what was placed here and comes back from the others is no work of theirs.
func TestAMemberIsQuietForAsLongAsTheOthersHaveNothingToDo(t *testing.T) {
	t.Parallel()
	names := engineNames(3)
	a := startMember(t, names, nil, nil)
	b := startMember(t, names, []string{a.Address()}, nil)
	all := []*proxy{a, b}
	awaitMembers(t, all)
	eventually(t, "both to be quiet", func() bool { return a.IsQuiet() && b.IsQuiet() })
	before, heard := a.active.Load(), b.active.Load()
	d := a.place(t, 5)
	eventually(t, "the placement", func() bool { return b.knows(5) == d.Engine })
	if b.active.Load() == heard {
		t.Error("a placement has been heard of, and all is said to be quiet")
	}
	eventually(t, "it to have been passed on", func() bool { return b.news.len() == 0 })
	if a.active.Load() != before {
		t.Error("its own placement is taken for another's")
	}
}
