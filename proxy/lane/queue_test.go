package lane

import (
	"testing"
	"time"
)

// C135, C137: one long prefill at a time; C143, C144: the place is free when the first token is there, and not before.
func TestOneLongPrefillAtATime(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 60_000)
	s.long(1, 2, 60_000)
	s.long(2, 3, 20_000)
	s.long(3, 4, 60_000)
	s.until(8000)
	s.first(8000, 1)
	s.leave(9000, 3) // its client left
	s.until(20_000)
	s.leave(20_000, 4) // was sent, failed
	s.first(30_000, 2)
	s.expect("0: 1 go", "1: 2 held", "2: 3 held", "3: 4 held", "8000: admit 3 (quiet)", "9000: admit 2 (quiet)")
}

func TestABudgetForSeveral(t *testing.T) {
	s := tell(t, Options{Budget: 100_000}, quick)
	s.long(0, 1, 60_000)
	s.long(1, 2, 40_000)
	s.long(2, 3, 10_000)
	s.first(10, 2)
	s.long(11, 4, 500_000) // larger than the whole budget
	s.first(20, 1)
	s.first(30, 3)
	s.expect("0: 1 go", "1: 2 go", "2: 3 held", "10: admit 3 (quiet)", "11: 4 held", "30: admit 4 (quiet)")
}

// The shortest goes first, but a longer one is passed only for so long.
func TestByRemainingWorkWithAgeing(t *testing.T) {
	s := tell(t, Options{}, quick)
	s.long(0, 1, 100_000)
	s.long(1, 2, 100_000) // 10 s of work: counts as having come at 20 s
	s.long(2, 3, 10_000)
	s.long(15_000, 4, 10_000)
	s.until(19_000)
	s.long(19_000, 5, 10_000) // counts as having come at 21 s
	s.said = nil
	for at := int64(20_000); at < 24_000; at += 1000 {
		var id uint64
		for _, i := range s.c.flight {
			id = s.c.all[i].id
		}
		s.first(at, id)
	}
	s.expect("20000: admit 3 (quiet)", "21000: admit 4 (quiet)", "22000: admit 2 (quiet)", "23000: admit 5 (quiet)")
}

// A tenant that sends only huge prompts slows itself, not the others.
func TestTenantsShare(t *testing.T) {
	s := tell(t, Options{MaxHeld: 1000}, quick)
	id := uint64(0)
	send := func(tenant uint64, tokens int) {
		id++
		s.arrive(0, Arrival{ID: tenant*1000 + id, Tenant: tenant, Fresh: tokens, Context: tokens})
	}
	send(3, 5000)
	for range 20 {
		send(1, 800_000)
	}
	for range 40 {
		send(2, 20_000)
	}
	done := map[uint64]int{}
	for at := int64(1); at <= 40; at++ {
		i := s.c.flight[0]
		r := &s.c.all[i]
		done[r.id/1000] += r.total
		s.c.FirstToken(at*ms, r.id)
		s.c.Actions(nil)
	}
	if done[2] != 39*20_000 || done[1] > 0 {
		t.Errorf("after 40 prefills the huge tenant had %d tokens, the other %d; want 800,000 of the other's first", done[1], done[2])
	}
}

func TestOneTenantCannotFillTheQueue(t *testing.T) {
	s := tell(t, Options{MaxHeld: 4}, quick)
	for id := range uint64(4) {
		s.arrive(0, Arrival{ID: id, Tenant: 1, Fresh: 50_000, Context: 50_000})
	}
	s.arrive(1, Arrival{ID: 4, Tenant: 2, Fresh: 50_000, Context: 50_000})
	s.arrive(1, Arrival{ID: 5, Tenant: 3, Fresh: 50_000, Context: 50_000})
	s.arrive(1, Arrival{ID: 6, Tenant: 4, Fresh: 50_000, Context: 50_000})
	s.short(2, 7)
	s.expect("0: 0 go", "0: 1 held", "0: 2 held", "0: 3 held", "1: 4 held", "1: 5 full", "1: 6 full", "2: 7 go")
}

func TestHeldForTooLong(t *testing.T) {
	s := tell(t, Options{MaxWait: time.Second}, quick)
	s.long(0, 1, 500_000)
	s.long(10, 2, 100_000)
	s.long(20, 3, 100_000)
	s.leave(900, 2)
	s.until(5000)
	s.expect("0: 1 go", "10: 2 held", "20: 3 held", "1020: expire 3 (waited)")
}
