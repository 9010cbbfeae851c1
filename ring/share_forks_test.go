package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A fork has an id of its own. Whichever proxy it reaches, with or without a word about its parent, it goes where its parent's
// history is warm, and so do its next turns (C098).
func TestForksWithTheirOwnIdsFindTheirParentAtAnyProxy(t *testing.T) {
	const proxyCount, sessions, forksEach = 3, 64, 4
	for _, hinted := range []bool{true, false} {
		for _, parentNamed := range []bool{true, false} {
			t.Run(fmt.Sprintf("hinted=%v/parentNamed=%v", hinted, parentNamed), func(t *testing.T) {
				ps := newProxies(t, proxyCount, 5*time.Millisecond, Options{}, fleet(8, 20_000_000))
				random := rand.New(rand.NewPCG(11, 12))
				turn := func(id, parent uint64, c *talk) Decision {
					w := ps.all[random.IntN(proxyCount)]
					w.now = ps.now
					ch, d := w.place(&Turn{Session: id, Parent: parent, Prompt: c.prompt()})
					ps.finish(ch)
					ps.sleep(20 * time.Millisecond)
					return d
				}
				forks, found, byParent, beyond := 0, 0, 0, 0
				for i := range uint64(sessions) {
					id := uint64(0)
					if parentNamed {
						id = mix(i + 1)
					}
					c := begin(i%3, 30_000, i, 1500+random.IntN(4000))
					parent := turn(id, 0, c)
					for n := range 1 + random.Uint64N(8) {
						parent = turn(id, 0, c.say(n, 2000+random.IntN(40_000)))
					}
					hint := uint64(0)
					if hinted {
						hint = parent.Session
					}
					for n := range uint64(forksEach) {
						fork := c.fork().say(1000+n, 5000)
						own := mix(i<<20 | n<<8 | 1)
						for k := range uint64(2) {
							d := turn(own, hint, fork.say(k, 1000))
							forks++
							if d.Engine == parent.Engine {
								found++
							}
							if k == 0 && d.Reason == Parent {
								byParent++
							}
							if k == 0 && d.Warm > d.Prompt/2 {
								beyond++
							}
						}
					}
				}
				t.Logf("%d of %d turns on the parent's engine; of %d first turns %d for the parent's sake, %d believed warm for more than half", found, forks, forks/2, byParent, beyond)
				if found*100 < forks*99 {
					t.Errorf("%d of %d turns of forks on the parent's engine", found, forks)
				}
				if beyond*2*100 < forks*95 {
					t.Errorf("%d of %d forks believed to be warm", beyond, forks/2)
				}
				if hinted && byParent*2*100 < forks*50 {
					t.Errorf("%d of %d forks say that they are at their parent's", byParent, forks/2)
				}
				ps.check()
			})
		}
	}
}

// A parent's engine that has much to do is no place for a fork: others compute the shared part sooner.
func TestAForkLeavesAParentsEngineThatIsBusy(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 20_000_000))
	a, b := ps.all[0], ps.all[1]
	history := begin(1, 30_000, 5, 3000).say(1, 100_000)
	a.now = ps.now
	ch, parent := a.start(7, history)
	ps.finish(ch)
	ps.sleep(20 * time.Millisecond)
	b.SetRemote([]Load{{Engine: EngineID(parent.Engine), Waiting: 400_000, Queued: 4}}) // 50 s of prefill
	b.now = ps.now
	fork, d := b.place(&Turn{Session: 8, Parent: 7, Prompt: history.fork().say(2, 3000).prompt()})
	defer fork.Release(ps.now, Outcome{})
	if d.Engine == parent.Engine {
		t.Errorf("the fork waits for 50 s: %+v", d)
	}
}

// What a proxy heard of a parent is void once its engine has restarted.
func TestAForkExpectsNothingOfAParentsEngineThatRestarted(t *testing.T) {
	for _, hint := range []uint64{7, 0} {
		ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 20_000_000))
		a, b := ps.all[0], ps.all[1]
		history := begin(1, 30_000, 5, 3000).say(1, 100_000)
		a.now = ps.now
		ch, parent := a.start(7, history)
		ps.finish(ch)
		ps.sleep(time.Minute)
		b.Forget(ps.now, parent.Engine)
		ps.sleep(time.Minute)
		b.now = ps.now
		fork, d := b.place(&Turn{Session: 8, Parent: hint, Prompt: history.fork().say(2, 3000).prompt()})
		fork.Release(ps.now, Outcome{})
		if d.Warm != 0 || d.Reason == Parent {
			t.Errorf("hint %d: %d tokens are believed to be warm on an engine that restarted: %+v", hint, d.Warm, d)
		}
	}
}

// A sub-agent names its parent and begins anew: it shares no history, and is not drawn to its parent's engine by one.
func TestASubAgentIsNotTakenForAFork(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 20_000_000))
	a, b := ps.all[0], ps.all[1]
	a.now = ps.now
	ch, _ := a.start(7, begin(1, 30_000, 5, 3000).say(1, 400_000))
	ps.finish(ch)
	ps.sleep(20 * time.Millisecond)
	b.now = ps.now
	sub, d := b.place(&Turn{Session: 8, Parent: 7, Prompt: begin(2, 40_000, 9, 3000).prompt()})
	sub.Release(ps.now, Outcome{})
	if d.Warm != 0 {
		t.Errorf("%d tokens of a history that it does not share: %+v", d.Warm, d)
	}
}

// News of a fork's own session cannot be under way, as it has none: nobody waits for it.
func TestAForkOfAKnownHistoryMissesNoNews(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 20_000_000))
	a, b := ps.all[0], ps.all[1]
	history := begin(1, 30_000, 5, 3000).say(1, 100_000)
	a.now = ps.now
	ch, _ := a.start(7, history)
	ps.finish(ch)
	ps.sleep(20 * time.Millisecond)
	for _, w := range []*world{a, b} {
		for _, hint := range []uint64{7, 0} {
			if w.Missing(&Turn{Now: ps.now, Session: 8, Parent: hint, Prompt: history.fork().say(2, 3000).prompt()}) {
				t.Errorf("hint %d: the fork waits for news of itself", hint)
			}
		}
		if !w.Missing(&Turn{Now: ps.now, Session: 9, Prompt: begin(1, 30_000, 6, 3000).say(1, 9000).prompt()}) {
			t.Error("a session of which nothing is known misses nothing")
		}
	}
}

// A fork without an id comes first at a proxy that knows its parent by hearsay alone, and is taken for the parent's next turn. When that comes,
// it is no stranger who goes wherever the queue is shortest: it stays where it lives.
func TestAParentWithoutAnIdStaysWhereItLivesAfterItsForkWasTakenForIt(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(8, 20_000_000))
	a, b := ps.all[0], ps.all[1]
	c := begin(1, 0, 5, 16_000)
	a.now = ps.now
	ch, lives := a.start(0, c)
	ps.finish(ch)
	ps.sleep(20 * time.Millisecond)
	fork, again := c.fork().say(9, 700), c.fork()
	b.now = ps.now
	ch, d := b.start(0, fork)
	ps.finish(ch)
	if d.Engine != lives.Engine {
		t.Fatalf("the fork is on %s, its parent on %s", d.Engine, lives.Engine)
	}
	b.SetRemote([]Load{{Engine: EngineID(lives.Engine), Waiting: 40_000, Queued: 4}}) // 5 s of prefill
	b.now = ps.now
	next, got := b.start(0, c.say(1, 600))
	defer next.Release(ps.now, Outcome{})
	if got.Engine != lives.Engine {
		t.Errorf("the parent's next turn is on %s (%s), it lives on %s", got.Engine, got.Reason, lives.Engine)
	}
	other, second := b.start(0, again.say(77, 5000)) // one more fork weighs the queue as ever
	defer other.Release(ps.now, Outcome{})
	if second.Engine == lives.Engine {
		t.Errorf("a second fork waits for 5 s as well: %+v", second)
	}
}
