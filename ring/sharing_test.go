package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// proxies are Placers in front of one fleet that tell each other everything, after a delay and in any order.
type proxies struct {
	t     *testing.T
	all   []*world
	now   int64
	delay time.Duration
	wire  []told2
	seq   uint64
	last  []map[Binding]uint64 // by receiver: the newest news of a key
	cut   bool
	heard func(Binding)      // what is told
	lost  func(Binding) bool // what does not arrive
}

type told2 struct {
	from     int
	at       int64
	seq      uint64
	bindings []Binding
	loads    []Load
}

func newProxies(t *testing.T, n int, delay time.Duration, opt Options, engines []Engine) *proxies {
	ps := &proxies{t: t, now: int64(time.Hour), delay: delay}
	for i := range n {
		w := newWorld(t, opt, engines)
		w.Share(uint64(i+1), nil)
		ps.all = append(ps.all, w)
		ps.last = append(ps.last, map[Binding]uint64{})
	}
	return ps
}

// sleep lets time pass and news arrive.
func (ps *proxies) sleep(d time.Duration) {
	step := int64(max(d/20, time.Millisecond))
	for end := ps.now + int64(d); ps.now < end; {
		ps.now = min(ps.now+step, end)
		ps.exchange()
	}
}

// exchange collects news and delivers what is due.
func (ps *proxies) exchange() {
	for i, w := range ps.all {
		w.now = ps.now
		ps.seq++
		bindings, loads := w.Collect(nil, nil)
		loads = w.Loads(loads[:0])
		ps.wire = append(ps.wire, told2{i, ps.now + int64(ps.delay), ps.seq, bindings, loads})
		for _, b := range bindings {
			if ps.heard != nil {
				ps.heard(b)
			}
			ps.last[i][Binding{Key: b.Key, Tail: b.Tail}] = ps.seq
		}
	}
	var left []told2
	loads := map[int]map[uint32]Load{}
	for _, m := range ps.wire {
		if m.at > ps.now {
			left = append(left, m)
			continue
		}
		if ps.cut {
			continue
		}
		own := map[uint32]Load{}
		for _, l := range m.loads {
			own[l.Engine] = l
		}
		loads[m.from] = own
		for i, w := range ps.all {
			if i == m.from {
				continue
			}
			for _, b := range m.bindings {
				key := Binding{Key: b.Key, Tail: b.Tail}
				if ps.lost != nil && ps.lost(b) {
					continue
				}
				if m.seq < ps.last[i][key] {
					continue
				}
				ps.last[i][key] = m.seq
				b.Tokens = ClassTokens(SizeClass(b.Tokens))
				w.Import(ps.now, []Binding{b})
			}
		}
	}
	ps.wire = left
	if len(loads) < len(ps.all) {
		return
	}
	for i, w := range ps.all {
		var sums []Load
		for _, e := range w.engines {
			sum := Load{Engine: EngineID(e.Name)}
			for from, own := range loads {
				if from != i {
					sum.Waiting += own[sum.Engine].Waiting
					sum.Queued += own[sum.Engine].Queued
					sum.Running += own[sum.Engine].Running
				}
			}
			sums = append(sums, sum)
		}
		w.SetRemote(sums)
	}
}

// finish ends a turn after a prefill at 8,000 tokens/s and a moment of answer.
func (ps *proxies) finish(ch *Charge) {
	ps.sleep(time.Duration(ch.fresh) * time.Second / 8_000)
	ch.FirstToken(ps.now)
	ps.sleep(20 * time.Millisecond)
	ch.Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Prefilled: true})
}

// check holds what is counted of others against a recount.
func (ps *proxies) check() {
	ps.t.Helper()
	for n, w := range ps.all {
		w.check()
		context := map[*engine]int64{}
		a := &w.share.away
		for i := a.active.newest; i != none; i = a.all.at(i).older {
			s := a.all.at(i)
			context[w.engineOf(s.engine)] += int64(s.tokens)
			if w.sessions.find(s.key) != none {
				ps.t.Fatalf("proxy %d: session %x is here and away", n, s.key)
			}
		}
		for _, e := range w.engines {
			if e.remote.context != context[e] {
				ps.t.Fatalf("proxy %d: %s has %d tokens of others, counted %d", n, e.Name, e.remote.context, context[e])
			}
		}
	}
}

func TestSizeClassesAreWithinAQuarter(t *testing.T) {
	last := -1
	for _, tokens := range []int{0, 1, 2, 3, 7, 8, 9, 100, 1000, 4095, 4096, 142_000, 1_000_000, 1 << 31} {
		class := SizeClass(tokens)
		back := ClassTokens(class)
		tokens = min(tokens, 1<<31-1)
		if back > tokens || float64(back) < 0.79*float64(tokens)-1 {
			t.Errorf("%d tokens are %d as class %d", tokens, back, class)
		}
		if int(class) < last || class > 127 {
			t.Errorf("class %d of %d tokens", class, tokens)
		}
		last = int(class)
	}
}

// Whichever proxy gets a turn, it goes where the session lives, moves included.
func TestTurnsArePlacedAlikeWhicheverProxyGetsThem(t *testing.T) {
	for _, named := range []bool{true, false} {
		for _, tight := range []bool{false, true} {
			t.Run(fmt.Sprintf("named=%v/tight=%v", named, tight), func(t *testing.T) {
				kv := int64(2_000_000)
				if tight {
					kv = 250_000 // sessions push each other out and move
				}
				ps := newProxies(t, 5, 5*time.Millisecond, Options{}, fleet(6, kv))
				random := rand.New(rand.NewPCG(5, 6))
				type life struct {
					talk   *talk
					engine string
				}
				sessions := make([]life, 60)
				turns, strays, moves := 0, 0, 0
				var flight []*Charge
				for i := range 800 {
					at := random.IntN(len(sessions))
					s := &sessions[at]
					if s.talk == nil || random.IntN(40) == 0 {
						*s = life{talk: begin(uint64(at%3), 30_000, uint64(i)<<20|uint64(at), 2000)}
					} else {
						s.talk.say(uint64(i), random.IntN(40_000)+200)
					}
					key := uint64(0)
					if named {
						key = mix(uint64(at)<<32 | s.talk.chain[s.talk.first-1].Fingerprint>>40)
					}
					w := ps.all[random.IntN(len(ps.all))]
					w.now = ps.now
					turn := Turn{Session: key, Prompt: s.talk.prompt()}
					if s.engine != "" && w.Missing(&turn) {
						t.Fatalf("turn %d: nothing is known of the session", i)
					}
					ch, d := w.place(&turn)
					turns++
					if s.engine != "" && d.Engine != s.engine {
						if d.Reason == Moved {
							moves++
						} else {
							strays++
							t.Logf("turn %d: %s (%s), it lives on %s", i, d.Engine, d.Reason, s.engine)
						}
					}
					s.engine = d.Engine
					flight = append(flight, ch)
					if len(flight) > 4 {
						ps.sleep(time.Duration(flight[0].fresh) * time.Second / 8_000 / 4)
						flight[0].FirstToken(ps.now)
						flight[0].Release(ps.now, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
						flight = flight[1:]
					}
					ps.sleep(time.Duration(10+random.IntN(40)) * time.Millisecond)
					if tight && i%300 == 150 || tight && i%300 == 250 { // an engine drains for a while
						list := fleet(6, kv)
						if i%300 == 150 {
							list[random.IntN(6)].State = Draining
						}
						for _, w := range ps.all {
							w.SetEngines(ps.now, list)
						}
					}
					if i%500 == 0 {
						ps.check()
					}
				}
				t.Logf("%d turns, %d moves, %d strays", turns, moves, strays)
				if strays*1000 > turns {
					t.Errorf("%d of %d turns strayed", strays, turns)
				}
				if tight && moves == 0 {
					t.Error("nothing ever moved: the test tests little")
				}
				ps.check()
			})
		}
	}
}

// A fork without an id reaches another proxy and finds its parent's engine.
func TestForksWithoutIdsFindTheirParentAtAnyProxy(t *testing.T) {
	ps := newProxies(t, 3, 5*time.Millisecond, Options{}, fleet(8, 2_000_000))
	random := rand.New(rand.NewPCG(7, 8))
	forks, found := 0, 0
	for i := range uint64(200) {
		c := begin(1, 30_000, i, 3000)
		turn := func(c *talk) Decision {
			w := ps.all[random.IntN(3)]
			w.now = ps.now
			ch, d := w.start(0, c)
			ps.finish(ch)
			return d
		}
		parent := turn(c)
		for n := range 1 + random.Uint64N(4) {
			parent = turn(c.say(n, 20_000))
		}
		for n := range uint64(3) {
			fork := c.fork().say(1000+n, 5000)
			for k := range uint64(2) {
				forks++
				if d := turn(fork.say(k, 1000)); d.Engine == parent.Engine {
					found++
				}
			}
		}
	}
	t.Logf("%d of %d turns of forks went to their parent's engine", found, forks)
	if found*100 < forks*99 {
		t.Errorf("%d of %d", found, forks)
	}
}

// A compaction is seen at one proxy; the session's next turns at another find the new history where it is, and are no strangers.
func TestACompactionIsFoundAtTheOthers(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(8, 2_000_000))
	a, b := ps.all[0], ps.all[1]
	turn := func(w *world, c *talk) Decision {
		w.now = ps.now
		ch, d := w.start(7, c)
		ps.finish(ch)
		return d
	}
	long := begin(1, 30_000, 5, 3000)
	for n := range uint64(6) {
		turn(a, long.say(n, 30_000))
		turn(b, long.say(n+100, 30_000))
	}
	short := begin(1, 30_000, 6, 20_000) // the summary
	d := turn(a, short)
	for n := range uint64(6) {
		got := turn(ps.all[(n+1)%2], short.say(n, 2000))
		if got.Session != d.Session || got.Engine != d.Engine || !got.Extends {
			t.Errorf("turn %d of the new history is taken for a stranger's: %+v, it lives on %s", n, got, d.Engine)
		}
	}
	ps.check()
}

// A title under a session's id comes first at a proxy that never saw the session. It must not be taken for the session.
func TestATitleAtAnotherProxyLeavesTheSessionAlone(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(8, 2_000_000))
	a, b := ps.all[0], ps.all[1]
	long := begin(1, 30_000, 5, 3000).say(1, 200_000)
	a.now = ps.now
	home := a.turn(7, long)
	ps.now = a.now
	ps.sleep(20 * time.Millisecond)
	if d := b.turn(7, begin(9, 500, 9, 400)); d.Session == 7 && d.Extends {
		t.Errorf("the title was taken for the session: %+v", d)
	}
	if d := b.turn(7, long.say(2, 3000)); d.Session != 7 || d.Engine != home.Engine || d.Reason != Bound || d.Warm < d.Prompt*3/4 {
		t.Errorf("the session is at %+v, it lives on %s", d, home.Engine)
	}
	ps.check()
}

// An engine that restarts has nothing of what others told to be there.
func TestARestartVoidsWhatOthersTold(t *testing.T) {
	ps := newProxies(t, 2, 5*time.Millisecond, Options{}, fleet(4, 2_000_000))
	a, b := ps.all[0], ps.all[1]
	long := begin(1, 30_000, 5, 3000).say(1, 200_000)
	a.now = ps.now
	home := a.turn(7, long)
	ps.now = a.now
	ps.sleep(20 * time.Millisecond)
	ps.sleep(10 * time.Second)
	b.Forget(ps.now, home.Engine)
	ps.sleep(time.Minute)
	b.now = ps.now
	if d := b.turn(7, long.say(2, 3000)); d.Warm != 0 {
		t.Errorf("%d tokens are believed to be warm on an engine that restarted", d.Warm)
	}
}

// Bindings to engines that are not configured here are ignored, and what was believed before ends.
func TestUnknownEnginesOfOthersAreIgnored(t *testing.T) {
	w := newWorld(t, Options{}, fleet(4, 0))
	w.Share(1, nil)
	w.Import(w.now, []Binding{{Key: 5, Engine: EngineID("elsewhere"), Tokens: 1000, Life: time.Hour}, {Key: 6, Engine: EngineID("e1"), Tokens: 1000, Life: time.Hour}})
	if v := w.Away(); v.Sessions != 1 || v.Totals.Unknown != 1 {
		t.Errorf("%+v", v)
	}
	w.Import(w.now, []Binding{{Key: 6, Engine: EngineID("elsewhere"), Tokens: 1000, Life: time.Hour}})
	if v := w.Away(); v.Sessions != 0 {
		t.Errorf("%+v", v)
	}
}

func TestStrangersAreBoundedAndForgotten(t *testing.T) {
	w := newWorld(t, Options{MaxSessions: 400}, fleet(4, 0))
	w.Share(1, nil)
	for i := range uint64(1000) {
		w.Import(w.now, []Binding{{Key: i + 1, Engine: EngineID("e1"), Tokens: 1000, Life: time.Hour}})
	}
	if v := w.Away(); v.Sessions > 100 || v.Totals.Shed < 900 {
		t.Errorf("%+v", v)
	}
	for range 100 {
		w.sleep(time.Minute)
		w.Import(w.now, nil)
	}
	if v := w.Away(); v.Sessions != 0 || w.byName["e1"].remote.context != 0 {
		t.Errorf("%+v, %d tokens", v, w.byName["e1"].remote.context)
	}
}

// News that comes with a compaction wakes the collector like any other, and so does whatever comes after it was collected:
// a proxy whose collector sleeps on would be silent for good.
func TestEveryKindOfNewsWakesTheCollector(t *testing.T) {
	w := newWorld(t, Options{}, fleet(3, 0))
	woken := 0
	w.Share(1, func() { woken++ })
	collect := func(after string) {
		t.Helper()
		if w.Untold() == 0 {
			return
		}
		if woken != 1 {
			t.Fatalf("%s: woken %d times, want once", after, woken)
		}
		w.Collect(nil, nil)
		woken = 0
	}
	history := begin(1, 30_000, 5, 3000)
	for i := range uint64(3) {
		w.turn(7, history.say(i, 30_000))
		collect("a turn")
	}
	compacted := begin(1, 30_000, 6, 20_000)
	w.turn(7, compacted)
	collect("the first turn of a new history")
	for i := range uint64(3) {
		w.turn(7, compacted.say(i, 2000))
		collect("a turn of the new history")
	}
	for i := range uint64(20) {
		w.turn(100+i, begin(5, 50_000, 100+i, 9000))
		if w.Untold() == 0 {
			t.Fatalf("session %d is not told", i)
		}
		collect("a new session after the compaction")
	}
}

// A long prefill is told at once when it begins and when it is done: others would go on believing in it until the next report.
func TestTheEndOfALongPrefillIsToldAtOnce(t *testing.T) {
	w := newWorld(t, Options{}, fleet(3, 0))
	woken := 0
	w.Share(1, func() { woken++ })
	loads := func() []Load {
		_, loads := w.Collect(nil, nil)
		return loads
	}
	ch, d := w.start(7, begin(1, 30_000, 5, 9000))
	if l := loads(); len(l) != 1 || l[0].Engine != EngineID(d.Engine) || l[0].Waiting == 0 {
		t.Fatalf("the beginning: %+v", l)
	}
	woken = 0
	w.sleep(time.Second)
	ch.FirstToken(w.now)
	if l := loads(); woken != 1 || len(l) != 1 || l[0].Waiting != 0 || l[0].Running != 1 {
		t.Errorf("the first token: woken %d times for %+v", woken, l)
	}
	ch.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, Prefilled: true})
	if l := loads(); len(l) != 0 {
		t.Errorf("a decode slot is told with the next report, not at once: %+v", l)
	}
	ch, _ = w.start(8, begin(2, 30_000, 6, 9000))
	loads()
	ch.Release(w.now, Outcome{Failed: true})
	if l := loads(); len(l) != 1 || l[0].Waiting != 0 {
		t.Errorf("a prefill that failed: %+v", l)
	}
}
