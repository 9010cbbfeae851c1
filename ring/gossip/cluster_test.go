package gossip

import (
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

func TestWhatOneProxyPlacesAllOthersKnow(t *testing.T) {
	t.Parallel()
	names := engineNames(8)
	all := startCluster(t, 3, names, nil)
	const sessions = 200
	for s := range uint64(sessions) {
		at := all[s%3]
		d := at.place(t, s+1)
		for _, p := range all {
			took := eventually(t, "the news of a placement", func() bool { return p.knows(s+1) == d.Engine })
			if took > time.Second {
				tooSlow(t, "session %d took %v", s, took)
			}
		}
		for _, p := range all {
			if again := p.place(t, s+1); again.Engine != d.Engine {
				t.Fatalf("session %d is on %s here and on %s (%s) there", s, d.Engine, again.Engine, again.Reason)
			}
		}
	}
}

func TestALateJoinerIsReadyOnlyWithTheWholeState(t *testing.T) {
	t.Parallel()
	names := engineNames(8)
	all := startCluster(t, 2, names, nil)
	where := map[uint64]string{}
	for range 500 {
		s := rand.Uint64()
		where[s] = all[0].place(t, s).Engine
	}
	eventually(t, "the second member to know", func() bool { return all[1].book.Len() >= 500 })
	late := startMember(t, names, []string{all[1].Address()}, nil)
	<-late.Ready()
	for s, engine := range where {
		if late.knows(s) != engine {
			t.Fatalf("the joiner was ready without session %x", s)
		}
		if d := late.place(t, s); d.Engine != engine || d.Reason != ring.Bound {
			t.Fatalf("the joiner placed session %x on %s (%s), it lives on %s", s, d.Engine, d.Reason, engine)
		}
	}
}

func TestAProxyAloneIsReadyAtOnceAndOneWithoutAnswerAfterItsLimit(t *testing.T) {
	t.Parallel()
	alone := startMember(t, engineNames(2), nil, nil)
	eventually(t, "a proxy alone to be ready", alone.IsReady)
	start := time.Now()
	waiting := startMember(t, engineNames(2), []string{"127.0.0.1:1"}, func(o *Options) { o.ReadyLimit = 600 * time.Millisecond })
	eventually(t, "the limit", waiting.IsReady)
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("ready after %v without an answer", took)
	}
}

func TestDrainsReachAllAndSurviveARestart(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	all := startCluster(t, 3, names, nil)
	all[1].Drain("e2", true)
	for _, p := range []*proxy{all[0], all[2]} {
		eventually(t, "the drain", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.drained["e2"]
		})
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
	again := startMember(t, names, []string{all[0].Address()}, nil)
	<-again.Ready()
	if drained, known := again.Drained("e2"); !drained || !known {
		t.Error("the drain is forgotten after a restart")
	}
	again.mu.Lock()
	told := again.drained["e2"]
	again.mu.Unlock()
	if !told {
		t.Error("the restarted proxy was not told to drain")
	}
	again.Drain("e2", false)
	eventually(t, "the end of the drain", func() bool {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		return !all[0].drained["e2"]
	})
}

func TestHintsReachAllOnce(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3, engineNames(4), nil)
	all[0].Saw("e1", ring.Down)
	for _, p := range all[1:] {
		eventually(t, "the hint", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.hints["e1"] == ring.Down
		})
		before := p.book.Totals().Written
		p.Saw("e1", ring.Down)
		if p.book.Totals().Written != before {
			t.Error("what all know is told again")
		}
	}
}

// A leaver is told as such, at once, and is not looked for; one that crashes is told as lost, and is.
func TestALeaverIsGoneAtOnceAndACrashSoon(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 5, engineNames(4), nil)
	if err := all[4].Close(); err != nil {
		t.Error(err)
	}
	told := func(members []*proxy, others int, line string) time.Duration {
		return eventually(t, line, func() bool {
			for _, p := range members {
				if p.members.count() != others || !strings.Contains(p.log.String(), line) {
					return false
				}
			}
			return true
		})
	}
	left := told(all[:4], 3, "member left\" member="+all[4].name)
	crashedName := all[3].name
	all[3].Abandon()
	crashed := told(all[:3], 2, "member lost\" member="+crashedName)
	t.Logf("left: told after %v; crashed: after %v", left, crashed)
	for _, p := range all[:3] {
		if v := p.View(); v.Totals.MembersLeft != 1 || v.Totals.MembersLost == 0 || v.Lost != 1 {
			t.Errorf("%s counts %d left and %d lost, and looks for %d", p.name, v.Totals.MembersLeft, v.Totals.MembersLost, v.Lost)
		}
		if text := p.log.String(); strings.Contains(text, "member lost\" member="+all[4].name) || strings.Contains(text, "member left\" member="+crashedName) {
			t.Errorf("the log of %s tells otherwise:\n%s", p.name, text)
		}
	}
}

// The word of a leaver may come behind the news that it is gone, or not at all.
func TestAGoodbyeMayComeLate(t *testing.T) {
	t.Parallel()
	var m members
	m.init()
	began := time.Unix(1000, 0)
	node := func(name string, port uint16) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: port}
	}
	for i, name := range []string{"late", "crashed", "polite", "found"} {
		m.add(node(name, uint16(i+1)))
	}
	m.goodbye(nodeID("polite"))
	if _, left := m.remove(node("polite", 3), began); !left || len(m.lost) != 0 {
		t.Error("one that has said goodbye is looked for")
	}
	for i, name := range []string{"late", "crashed"} {
		if _, left := m.remove(node(name, uint16(i+1)), began); left {
			t.Errorf("%s has left", name)
		}
	}
	if names := m.lostNow(began.Add(lostAfter / 2)); len(names) > 0 {
		t.Errorf("%v are lost at once", names)
	}
	if name, left := m.goodbye(nodeID("late")); name != "late" || !left {
		t.Error("a late goodbye does not count")
	}
	if names := m.lostNow(began.Add(lostAfter)); !slices.Equal(names, []string{"crashed"}) {
		t.Errorf("lost are %v", names)
	}
	if names := m.lostNow(began.Add(time.Hour)); len(names) > 0 {
		t.Errorf("%v are told twice", names)
	}
	if _, left := m.goodbye(nodeID("crashed")); left || len(m.lost) != 0 {
		t.Error("one that was told as lost is told as left, too, or is looked for though it has left")
	}
}

func TestAPrefillIsTakenBackByTheProxyThatHasIt(t *testing.T) {
	t.Parallel()
	asked := make(chan uint64, 1000)
	all := startCluster(t, 3, engineNames(4), func(i int, o *Options) {
		if i == 1 {
			o.OnPreempt = func(engine string, request uint64, _ bool) Answer {
				asked <- request
				if engine != "e3" {
					t.Errorf("asked for %s", engine)
				}
				return Freed
			}
		}
	})
	answers := make(chan Answer, 1)
	times := 0
	ask := func(of string) (a Answer) { // until there is an answer: on a slow machine one may come too late
		for range 50 {
			times++
			all[0].Preempt(of, "e3", 42, func(a Answer) { answers <- a })
			if a = <-answers; a != NoAnswer {
				break
			}
		}
		return a
	}
	if a := ask(all[1].Name()); a != Freed {
		t.Errorf("answer %v", a)
	}
	if n := len(asked); n < 1 || n > times {
		t.Errorf("asked for %d times, done %d times", times, n)
	}
	for len(asked) > 0 {
		if turn := <-asked; turn != turnOf(all[0].node, 42) || turn == turnOf(all[2].node, 42) {
			t.Errorf("asked for turn %d", turn)
		}
	}
	if a := ask(all[2].Name()); a != Refused {
		t.Errorf("a proxy that preempts nothing answered %v", a)
	}
	all[0].Preempt("nobody", "e3", 42, func(a Answer) { answers <- a })
	if a := <-answers; a != NoAnswer {
		t.Errorf("nobody answered %v", a)
	}
}

func TestEachEngineHasOneOwnerAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	names := engineNames(60)
	all := startCluster(t, 3, names, nil)
	owners := func(members []*proxy) (most int, single bool) {
		counts := map[*proxy]int{}
		single = true
		for _, name := range names {
			n := 0
			for _, p := range members {
				if p.Owner(name) {
					counts[p]++
					n++
				}
			}
			single = single && n == 1
		}
		for _, n := range counts {
			most = max(most, n)
		}
		return most, single
	}
	eventually(t, "one owner each", func() bool { most, single := owners(all); return single && most < 40 })
	all[2].Abandon()
	took := eventually(t, "the others to take over", func() bool { _, single := owners(all[:2]); return single })
	t.Logf("taken over after %v", took)
}

func TestLoadsReachTheOthersAtOnceAndGoWithTheirProxy(t *testing.T) {
	t.Parallel()
	names := engineNames(1)
	all := startCluster(t, 3, names, nil)
	var d ring.Decision
	turn := ring.Turn{Now: clock(), Session: 7, Prompt: promptOf(7, 200_000)}
	ch, err := all[0].placer.Place(&turn, &d)
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(p *proxy) int { // as the next decision sees it
		var d ring.Decision
		ch, err := p.placer.Place(&ring.Turn{Now: clock()}, &d)
		if err != nil {
			t.Fatal(err)
		}
		ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
		return d.Runners[0].Waiting
	}
	for _, p := range all[1:] {
		took := eventually(t, "the load", func() bool { return waiting(p) > 40_000 })
		t.Logf("a prefill is known after %v", took)
	}
	ch.FirstToken(clock())
	eventually(t, "the end of the prefill", func() bool { return waiting(all[1]) == 0 })
	ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})

	turn.Session = 8
	turn.Prompt = promptOf(8, 200_000)
	if ch, err = all[0].placer.Place(&turn, &d); err != nil {
		t.Fatal(err)
	}
	defer ch.Release(clock(), ring.Outcome{})
	eventually(t, "the load", func() bool { return waiting(all[1]) > 40_000 })
	all[0].Abandon() // its load is unknown soon, long before its death is
	took := eventually(t, "the silent proxy's load to be left out", func() bool { return waiting(all[1]) == 0 })
	t.Logf("left out after %v", took)
}
