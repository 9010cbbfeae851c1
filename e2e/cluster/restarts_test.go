package cluster

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// While sessions take turns and fork, a proxy is killed (kill -9) and comes back, one stands still for 20 s (SIGSTOP), and one is killed
// and comes back at another address: sessions stay where they live, forks go where their parents are.
func TestProxiesDieStandStillAndComeBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, 4)
	c := f.crowd(24, true)
	c.forks = child
	d := f.crowd(24, false)
	d.forks = nameless
	c.heard("before", 2)
	d.heard("before, without ids", 2)
	phase := func(what string, errors int, happens func()) {
		t.Helper()
		c.during(400*time.Millisecond, func() { d.during(400*time.Millisecond, happens) })
		c.raced(what+", with ids", errors)
		d.raced(what+", without", errors)
		c.heard("afterwards", 1)
		d.heard("afterwards, without ids", 1)
	}
	// At most one turn of each session is under way where it breaks.
	phase("one killed", len(c.sessions), func() {
		time.Sleep(500 * time.Millisecond)
		f.down(0).Kill()
		time.Sleep(500 * time.Millisecond)
		f.start(0)
		t.Logf("whole %v after the killed one is back", f.whole())
	})
	phase("one stands still", len(c.sessions), func() {
		still := f.down(2)
		stopped := time.Now()
		if err := syscall.Kill(still.Pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Logf("taken for dead after %v", f.until("the stopped one to be taken for dead", func(views []view) bool {
			return len(views) == 2 && len(views[0].Members) == 1 && len(views[1].Members) == 1
		}))
		time.Sleep(20*time.Second - time.Since(stopped))
		if err := syscall.Kill(still.Pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		f.up(2, still) // at once: its first turns are of sessions that went on without it
		t.Logf("whole %v after the stopped one goes on", f.whole())
	})
	phase("one killed, back elsewhere", len(c.sessions), func() {
		f.down(1).Kill()
		f.move(1) // those that run know only the old address
		f.start(1)
		t.Logf("whole %v after the killed one is back at another address", f.whole())
	})
}

// All proxies are restarted one after the other while sessions go on. They leave; none is lost.
func TestARolloutLosesNoSession(t *testing.T) {
	f := newFleet(t, 3, 4)
	c := f.crowd(24, true)
	c.forks = child
	d := f.crowd(24, false)
	c.heard("before", 2)
	d.heard("before, without ids", 2)
	// Sessions that do not live where the ring would put them: what keeps them there has to survive.
	f.steer(0, "e0", true)
	f.settle()
	c.heard("one engine drained", 1)
	d.heard("one engine drained, without ids", 1)
	f.steer(0, "e0", false)
	f.settle()
	f.leave("e0", false)
	f.steer(1, "e1", true) // and a drain that all have to know afterwards
	f.leave("e1", true)
	f.settle()
	c.during(300*time.Millisecond, func() {
		for i := range 3 {
			time.Sleep(300 * time.Millisecond)
			w := f.down(i)
			if err := w.Terminate(); err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(patience); err != nil {
				t.Error(err)
			}
			f.start(i)
			f.whole()
		}
	})
	c.raced("meanwhile", 3*len(c.sessions)) // as many as may be on their way to a proxy that ends
	c.heard("afterwards", 2)
	d.heard("those that took no turn meanwhile", 2)
	for _, s := range append(c.sessions, d.sessions...) {
		if s.lives == "e1" {
			t.Errorf("session %d is on an engine that was drained before the rollout", s.number)
		}
	}
	for _, w := range f.running() {
		v, err := look(w)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d left, %d lost", w.Name, v.Totals.Left, v.Totals.Lost)
		if v.Totals.Lost > 0 && figures {
			t.Errorf("%s lost %d members in a rollout", w.Name, v.Totals.Lost)
		}
	}
}

// Clusters that meet and have other names, or other keys, stay what they are: nobody joins, hears or drains across, and all is counted.
func TestStrangersStayStrangers(t *testing.T) {
	t.Parallel()
	key := `keys = ["MDEyMzQ1Njc4OWFiY2RlZg=="]`
	wrong := `keys = ["ZmVkY2JhOTg3NjU0MzIxMA=="]`
	f := described(t, 6, 3)
	for i, own := range []string{
		`name = "blue"` + "\n" + key, `name = "green"` + "\n" + key, `name = "blue"` + "\n" + wrong,
	} {
		for _, j := range []int{2 * i, 2*i + 1} {
			f.extra[j] = own + "\nready_limit = \"3s\"\nrejoin = \"1s\"\n"
		}
	}
	for i := range 6 { // all try all addresses
		f.start(i)
	}
	if t.Failed() {
		t.FailNow()
	}
	pairs := func(views []view) bool {
		for _, v := range views {
			if !v.Ready || len(v.Members) != 1 {
				return false
			}
		}
		return len(views) == 6
	}
	f.until("each to see its like alone", pairs)
	f.until("strangers to be counted by all", func(views []view) bool {
		for _, v := range views {
			if v.Strangers == 0 {
				return false
			}
		}
		return true
	})
	f.steer(0, "e1", true)
	for i, name := range []string{"blue", "green", "with another key"} {
		c := f.crowd(12, true)
		c.among = []int{2 * i, 2*i + 1}
		for range 4 {
			c.once()
		}
		if got := c.tell(name); got.strays+got.errors > 0 {
			t.Errorf("%s: %d strays, %d errors", name, got.strays, got.errors)
		}
		drained := 0
		for _, s := range c.sessions {
			if s.lives == "e1" {
				drained++
			}
		}
		if (drained == 0) != (i == 0) {
			t.Errorf("%s: %d sessions on the engine that blue has drained", name, drained)
		}
	}
	f.until("each to see its like alone, still", pairs)
	fleetViews := ""
	for _, w := range f.running() {
		v, err := look(w)
		if err != nil {
			t.Fatal(err)
		}
		fleetViews += fmt.Sprintf(" %d", v.Strangers)
	}
	t.Logf("strangers counted:%s", fleetViews)
}
