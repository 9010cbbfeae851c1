package lane

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A tenant alone may use most of the queue; however many fill it, one that has nothing there finds a place while there is any.
func TestOneTenantAloneMayHoldMost(t *testing.T) {
	s := tell(t, Options{MaxHeld: 100}, quick)
	fill := func(tenant uint64) (n int) {
		for s.arrive(0, Arrival{ID: tenant<<32 | uint64(n), Tenant: tenant, Fresh: 50_000}) == Held {
			n++
		}
		return n
	}
	s.long(0, 1<<60, 50_000) // in flight
	if n := fill(1); n != 80 {
		t.Errorf("a tenant alone held %d of 100, want 80", n)
	}
	if n := fill(2); n < 10 {
		t.Errorf("a second one held %d more, want a good part of the rest", n)
	}
	if n := fill(3); n < 1 {
		t.Errorf("a third one found no place")
	}
	s = tell(t, Options{MaxHeld: 100, MaxHeldPerTenant: 10}, quick)
	s.long(0, 1<<60, 50_000)
	if n := fill(1); n != 10 {
		t.Errorf("held %d, want the 10 that are allowed", n)
	}
}

// Whatever others hold: as long as they do not number as many as the places, somebody new is let in.
func TestThereIsAlwaysRoomForANewcomer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(2, 64).Draw(t, "places")
		tenants := rapid.IntRange(1, 4).Draw(t, "tenants")
		c := New(Options{MaxHeld: most, MaxHeldBytes: 1000})
		c.SetFacts(quick)
		c.Arrive(0, Arrival{ID: 1, Fresh: 50_000})
		for n := range rapid.IntRange(0, 200).Draw(t, "requests") {
			c.Arrive(0, Arrival{ID: uint64(n + 2), Tenant: uint64(n%tenants) + 1, Fresh: 50_000, Bytes: rapid.IntRange(0, 100).Draw(t, "bytes")})
			if c.queue.len() > most || c.held > 1000 {
				t.Fatalf("%d requests of %d bytes are held", c.queue.len(), c.held)
			}
		}
		if free := most - c.queue.len(); c.queue.len() < tenants || free == 0 && tenants >= most {
			return
		}
		if most > 2*tenants && c.Arrive(0, Arrival{ID: 1000, Tenant: 99, Fresh: 50_000, Bytes: 1}) == Full {
			t.Fatalf("no place for a newcomer: %d of %d held, %d bytes", c.queue.len(), most, c.held)
		}
	})
}

// Bodies that are held are bounded by their bytes; one is held whatever its size.
func TestHeldBodiesAreBounded(t *testing.T) {
	s := tell(t, Options{MaxHeldBytes: 1000}, quick)
	s.long(0, 1, 50_000)
	big := func(id, tenant uint64, bytes int) {
		s.arrive(0, Arrival{ID: id, Tenant: tenant, Fresh: 50_000, Bytes: bytes})
	}
	big(2, 1, 5000)
	big(3, 2, 1)
	s.leave(1, 2)
	big(4, 1, 600)
	big(5, 1, 300) // the same tenant would leave too little
	big(6, 2, 300)
	big(7, 3, 200)
	s.first(2, 1) // 4 goes
	big(8, 3, 200)
	s.expect("0: 1 go", "0: 2 held", "0: 3 full", "0: 4 held", "0: 5 full", "0: 6 held", "0: 7 full", "2: admit 4 (quiet)", "0: 8 held")
	s.leave(3, 6)
	s.leave(3, 8)
	if s.c.held != 0 {
		t.Errorf("%d bytes held by nobody", s.c.held)
	}
}

// A refused client is told to come back when what is there may be done.
func TestWhenToComeBack(t *testing.T) {
	s := tell(t, Options{}, quick)
	for _, c := range []struct {
		tokens int
		want   time.Duration // for all that came so far
	}{{5000, time.Second}, {50_000, 5 * time.Second}, {100_000, 15 * time.Second}, {800_000, time.Minute}} {
		s.arrive(0, Arrival{ID: uint64(c.tokens), Fresh: c.tokens})
		if got := s.c.RetryAfter(0); got < c.want || got > c.want*6/5 {
			t.Errorf("with %d tokens more: %v, want about %v", c.tokens, got, c.want)
		}
	}
	s.leave(1, 800_000)
	s.leave(1, 100_000)
	if got := s.c.RetryAfter(250 * ms); got > 6*time.Second {
		t.Errorf("%v after they left", got)
	}
}

// A request that cannot be stopped, on an engine that can: it is not taken back, and its neighbour is.
func TestARequestThatCannotBeStopped(t *testing.T) {
	s := tell(t, Options{Budget: 200_000}, quick)
	s.arrive(0, Arrival{ID: 1, Fresh: 100_000, NoPreempt: true})
	s.long(0, 2, 100_000)
	s.short(1000, 3)
	s.until(10_000)
	s.expect("0: 1 go", "0: 2 go", "1000: 3 go", "1000: preempt 2 (blocking)")
}

// Interactive requests pass, but not without end: an engine that has not answered so many is not given more.
func TestTooManyInteractiveRequestsAreRefused(t *testing.T) {
	s := tell(t, Options{MaxWaiting: 2}, quick)
	s.short(0, 1)
	s.arrive(1, Arrival{ID: 2, Fresh: 60, Context: 60, Unstreamed: true})
	s.short(2, 3)
	s.long(3, 4, 50_000) // the long queue is another matter
	s.first(10, 1)
	s.short(11, 5)
	s.expect("0: 1 go", "1: 2 go", "2: 3 crowded", "3: 4 held", "11: 5 go")
	if v := s.c.View(); v.Totals.Crowded != 1 || v.Waiting != 2 {
		t.Errorf("%+v", v)
	}
}
