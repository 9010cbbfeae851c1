package cluster

import (
	"fmt"
	"testing"
	"time"
)

// C093, C094: 3 proxies, 4 engines, 64 sessions of 10 turns, a proxy by chance for each.
func TestTurnsStayOnTheirEngineWhicheverProcessGetsThem(t *testing.T) {
	f := newFleet(t, 3, 4)
	for _, named := range []bool{true, false} {
		f.crowd(64, named).heard(fmt.Sprintf("ids %v", named), 10)
		c := f.crowd(64, named)
		c.during(40*time.Millisecond, func() { time.Sleep(2 * time.Second) })
		c.raced(fmt.Sprintf("ids %v, raced", named), 0)
		c.heard("afterwards", 1)
	}
	for _, w := range f.running() {
		if err := w.Idle(t.Context(), patience); err != nil {
			t.Error(err)
		}
	}
	all := f.metrics()
	for _, name := range names(all) {
		m := all[name]
		t.Logf("%s: %v members, %v merged, met %v, waited for news %v, shed %v, sent %v KB", name, m.Sum("warmring_cluster_members"), m.Sum("warmring_cluster_merged_total"),
			m.Sum("warmring_cluster_met_total"), m.Sum("warmring_news_awaited_total"), m.Sum("warmring_cluster_shed_total"), int(m.Sum("warmring_cluster_packet_bytes_sent_total")/1000))
		if m.Sum("warmring_cluster_members") != 3 || m.Sum("warmring_cluster_merged_total") == 0 {
			t.Error("the metrics do not show the cluster")
		}
	}
}

// A fork begins on its parent's engine, whichever proxy gets it. The engines are so slow and the forks so few at a time that following is worth
// more than waiting costs.
func TestForksFollowTheirParentToAnyProxy(t *testing.T) {
	f := described(t, 3, 0)
	for i := range 4 {
		f.engine(fmt.Sprint("e", i), 4)
	}
	f.begin()
	for _, k := range []kin{nameless, named, child} {
		c := f.crowd(64, k != nameless)
		c.heard("parents of forks "+k.String(), 2)
		forks := c.forked1(k)
		forks.together = 8
		forks.round()
		if got := forks.tell("forks " + k.String()); float64(got.astray) > 0.01*float64(got.forked) || got.errors > 0 {
			t.Errorf("forks %s: %d of %d not on their parent's engine, %d errors", k, got.astray, got.forked, got.errors)
		}
		forks.heard("later turns of forks "+k.String(), 2)
		c.heard("their parents", 1)
	}
}

// C093 with moves: one engine is overloaded with long prompts, another is drained and put back. Whoever gets a session's next turn
// knows where it went.
func TestMovesAreFollowedByAll(t *testing.T) {
	t.Parallel() // it waits for a slow engine
	f := described(t, 3, 0)
	f.engine("e0", 1) // slow, so that its work waits for long
	for _, name := range []string{"e1", "e2", "e3"} {
		f.engine(name, 20)
	}
	f.begin()
	c, d := f.crowd(32, true), f.crowd(32, false)
	both := func(what string, rounds int) {
		t.Helper()
		c.heard(what+", with ids", rounds)
		d.heard(what+", without", rounds)
	}
	both("before", 2)
	release := f.overload("e0", 5)
	f.leave("e0", true)
	both("e0 overloaded", 4)
	f.steer(1, "e1", true)
	f.settle()
	both("e1 drained", 2)
	f.steer(2, "e1", false)
	f.settle()
	both("e1 back", 2)
	release()
	f.leave("e0", false)
	f.leave("e1", false)

	// The same while turns race with the news.
	c.forks = child
	c.during(60*time.Millisecond, func() {
		d.during(60*time.Millisecond, func() {
			f.steer(0, "e2", true)
			time.Sleep(time.Second)
			f.steer(1, "e2", false)
			release := f.overload("e3", 5)
			f.leave("e3", true)
			time.Sleep(2 * time.Second)
			release()
		})
	})
	c.raced("raced, with ids", 0)
	d.raced("raced, without", 0)
	// Two proxies may have moved a session to two places at once: all agree on one of them, which need not be where its last turn was.
	for what, crowd := range map[string]*crowd{"with ids": c, "without": d} {
		crowd.f.settle()
		crowd.round()
		crowd.tell("the first turns afterwards, " + what)
	}
	both("afterwards", 2)
}
