package gossip

import (
	"net"
	"testing"
	"time"
)

// joining makes a member that has opened its ports and not found anybody: it answers, and knows nothing.
func joining(t *testing.T, names []string) *Cluster {
	t.Helper()
	c, err := create(Options{Node: "unready", Bind: "127.0.0.1:0", Engines: names, Placer: newPlacer(names), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abandon)
	return c
}

// deaf is an address that hangs up on everybody, as a member with too many connections does.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// Two of three proxies start again at the same time. Whichever address each tries first, it is ready only with what the third knows.
func TestAJoinerIsNotReadyWithTheStateOfAnotherJoiner(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	for range 8 { // the order of addresses is random
		old := startMember(t, names, nil, nil)
		for s := range uint64(150) {
			old.place(t, s+1)
		}
		eventually(t, "150 entries", func() bool { return old.book.Len() >= 150 })
		other := joining(t, names)
		p := startMember(t, names, []string{other.Address(), old.Address()}, func(o *Options) { o.ReadyLimit = time.Hour })
		<-p.Ready()
		if n := p.book.Len(); n < 150 || p.View().Alone {
			t.Fatalf("ready with %d of 150 entries", n)
		}
	}
}

// The other joiner may be the one that comes.
func TestAJoinerThatComesDoesNotMakeAnotherReady(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	p := startMember(t, names, []string{deaf(t)}, func(o *Options) { o.ReadyLimit = time.Hour })
	other := joining(t, names)
	if _, err := other.list.Join([]string{p.Address()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other joiner to be a member", func() bool { return p.members.count() == 1 })
	before := p.counts.joinFails.Load()
	eventually(t, "two more attempts at the address that hangs up", func() bool { return p.counts.joinFails.Load() > before+1 })
	if p.IsReady() {
		t.Fatal("ready with the state of a joiner, while somebody hangs up on it")
	}

	old := startMember(t, names, nil, nil)
	old.place(t, 77)
	eventually(t, "an entry", func() bool { return old.book.Len() >= 1 })
	if _, err := old.list.Join([]string{p.Address()}); err != nil {
		t.Fatal(err)
	}
	<-p.Ready()
	if p.knows(77) == "" {
		t.Error("ready without the state of the one that came")
	}
}

// Who is told of a member that has the state asks it, also if no name leads there.
func TestAJoinerAsksMembersThatItHearsOf(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	old := startMember(t, names, nil, nil)
	other := joining(t, names)
	if _, err := other.list.Join([]string{old.Address()}); err != nil {
		t.Fatal(err)
	}
	old.place(t, 77) // the other joiner does not read what it is told now
	eventually(t, "an entry", func() bool { return old.book.Len() >= 1 })
	p := startMember(t, names, []string{other.Address()}, func(o *Options) { o.ReadyLimit = time.Hour })
	<-p.Ready()
	if p.knows(77) == "" {
		t.Error("ready without what a member knew that it had heard of")
	}
}

// Where all begin at once nobody has a state to give, and nobody waits for one: not for those that are not there either.
func TestJoinersThatHaveAskedEverybodyAreReady(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	other := joining(t, names)
	p := startMember(t, names, []string{other.Address(), "127.0.0.1:1"}, func(o *Options) { o.ReadyLimit = time.Hour })
	<-p.Ready()
	if p.View().Alone {
		t.Error("alone, although there is another one")
	}
}
