package cluster

import (
	"fmt"
	"testing"
	"time"
)

// Packets are lost, come late, twice and in another order: the proxies stay one cluster as far as it goes, and whoever has heard sends
// a session to its engine. With 30 % lost, that takes a moment.
func TestALossyNetwork(t *testing.T) {
	t.Parallel()
	f := described(t, 3, 4)
	n := f.between()
	for i := range f.extra {
		f.extra[i] += "sync = \"2s\"\n"
	}
	f.begin()
	for _, loss := range []float64{0.01, 0.1, 0.3} {
		n.set(faults{loss: loss, twice: 0.1, delay: 30 * time.Millisecond})
		for _, named := range []bool{true, false} {
			c := f.crowd(16, named)
			what := fmt.Sprintf("%.0f %% lost, ids %v", 100*loss, named)
			c.heard(what, 3)
			c.during(200*time.Millisecond, func() { time.Sleep(time.Second) })
			c.raced(what+", raced", 0)
			c.heard(what+", afterwards", 1)
		}
		f.steer(0, "e0", true)
		f.settle()
		c := f.crowd(16, true)
		c.heard(fmt.Sprintf("%.0f %% lost, one drained", 100*loss), 1)
		for _, s := range c.sessions {
			if s.lives == "e0" {
				t.Errorf("session %d is on a drained engine", s.number)
			}
		}
		f.steer(1, "e0", false)
		f.settle()
		f.leave("e0", false)
	}
	n.set(faults{})
	t.Logf("whole %v after the network is well again", f.whole())
	n.tell(t)
}

// Cuts of 1 s and 10 s: both sides go on with what they know and learn other things. Afterwards all know all of it (C106).
func TestCutsHeal(t *testing.T) {
	t.Parallel()
	f := described(t, 5, 4)
	n := f.between()
	f.begin()
	for _, long := range []time.Duration{time.Second, 10 * time.Second} {
		f.cut(n, long)
	}
	n.tell(t)
}

// One of 31 s is longer than members that are gone are told of anything.
func TestACutThatOutlastsTheMemoryOfTheDeadHeals(t *testing.T) {
	t.Parallel()
	f := described(t, 4, 4)
	n := f.between()
	f.begin()
	f.cut(n, 31*time.Second)
	n.tell(t)
}

// cut separates all but the last two proxies from these for a while.
func (f *fleet) cut(n *network, long time.Duration) {
	f.t.Helper()
	what := fmt.Sprintf("cut of %v", long)
	at := len(f.proxies) - 2
	sides := [][]int{nil, {at, at + 1}}
	for i := range at {
		sides[0] = append(sides[0], i)
	}
	old := f.crowd(24, true)
	old.heard(what+": sessions from before", 2)
	n.set(split(at))
	began := time.Now()
	if long > 5*time.Second {
		f.until("both sides to notice", func(views []view) bool {
			for i, v := range views {
				if side := sides[min(i/at, 1)]; len(v.Members) != len(side)-1 {
					return false
				}
			}
			return true
		})
		f.t.Logf("%s: noticed after %v", what, time.Since(began))
	}
	// What all knew before is known on both sides: these go on at any proxy.
	for range 2 {
		old.once()
	}
	old.judge(what + ": meanwhile, sessions from before")
	// One side drains an engine and its sessions move; both have new ones.
	f.steer(0, "e0", true)
	crowds := []*crowd{f.crowd(16, true), f.crowd(16, true), f.crowd(16, false), f.crowd(16, false)}
	for i, c := range crowds {
		c.among = sides[i%2]
	}
	stay := f.crowd(0, true) // of one side: they move there
	stay.sessions, stay.among = old.sessions[:12], sides[0]
	for range 2 {
		stay.once()
		for _, c := range crowds {
			c.once()
		}
	}
	stay.judge(what + ": meanwhile, sessions that move")
	for i, c := range crowds {
		c.judge(fmt.Sprintf("%s: new ones of side %d, ids %v", what, i%2, c.named))
		c.among = nil
	}
	time.Sleep(long - time.Since(began))
	n.set(faults{})
	healed := time.Now()
	f.whole()
	whole := time.Since(healed)
	f.settle()
	took := time.Since(healed)
	f.t.Logf("%s: whole %v after it, all know the same after %v", what, whole, took)
	if took > 5*time.Second && figures {
		f.t.Errorf("%s: agreed only after %v", what, took)
	}
	for _, c := range append(crowds, old) { // the drain has reached the other side: what lives there leaves
		c.heard(fmt.Sprintf("%s: afterwards, ids %v", what, c.named), 2)
		for _, s := range c.sessions {
			if s.lives == "e0" {
				f.t.Errorf("session %d is on an engine that one side drained in the cut", s.number)
			}
		}
	}
	f.steer(at, "e0", false)
	f.settle()
	f.leave("e0", false)
}

// What one proxy sends arrives, what is sent to it does not, and the other way round.
func TestOneWayCutsHeal(t *testing.T) {
	t.Parallel()
	f := described(t, 3, 4)
	n := f.between()
	f.begin()
	old := f.crowd(24, true)
	old.heard("before", 2)
	for what, cut := range map[string]func(from, to int) bool{
		"one that does not hear":    func(_, to int) bool { return to == 2 },
		"one that nobody hears":     func(from, _ int) bool { return from == 2 },
		"two that miss each other":  func(from, to int) bool { return from != 0 && to != 0 },
		"one that misses the other": func(from, to int) bool { return from == 1 && to == 2 },
	} {
		n.set(faults{cut: cut})
		c := f.crowd(12, true)
		c.among = []int{2}
		c.during(200*time.Millisecond, func() { time.Sleep(4 * time.Second) })
		c.judge(what + ": its own sessions")
		old.once()
		old.judge(what + ": sessions from before")
		n.set(faults{})
		healed := time.Now()
		f.whole()
		f.settle()
		f.t.Logf("%s: all know the same %v after the end", what, time.Since(healed))
		c.among = nil
		c.heard(what+": its sessions afterwards", 1)
		old.heard(what+": sessions from before, afterwards", 1)
	}
	n.tell(t)
}
