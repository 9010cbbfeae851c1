package lane

import (
	"strconv"
	"testing"
	"time"
)

// full is a Controller with so many long requests held, by so many tenants, and interactive ones in flight.
func full(held, tenants int) *Controller {
	c := New(Options{Border: 16_000, MaxHeld: 10_000, MaxHeldPerTenant: 10_000, MaxWait: 1000 * time.Hour})
	c.SetFacts(quick)
	for i := range held + 1 {
		c.Arrive(int64(i), Arrival{ID: uint64(i), Tenant: uint64(i % tenants), Fresh: 20_000 + i*7919%100_000, Context: 150_000})
	}
	for i := range 100 {
		c.Arrive(int64(held), Arrival{ID: uint64(1<<20 + i), Fresh: 100, Context: 100_000})
	}
	c.Actions(nil)
	return c
}

// An interactive turn comes and gets its first token, with 1,000 long ones held: two decisions.
func BenchmarkInteractive(b *testing.B) {
	c := full(1000, 10)
	var actions []Action
	now := int64(time.Hour)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := uint64(1<<30 + i)
		now += 1000
		c.Arrive(now, Arrival{ID: id, Fresh: 100, Context: 100_000})
		actions = c.Actions(actions[:0])
		c.FirstToken(now+500, id)
		c.Leave(now+600, id)
		c.Next()
	}
}

// A long request comes, another is admitted and has its first token, with 1,000 held by as many tenants.
func BenchmarkLong(b *testing.B) {
	c := full(1000, 1000)
	for i := range 100 {
		c.Leave(int64(time.Hour), uint64(1<<20+i))
	}
	var actions []Action
	now := int64(time.Hour)
	running := c.all[c.flight[0]].id
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += int64(time.Second)
		c.Arrive(now, Arrival{ID: uint64(1<<30 + i), Tenant: uint64(i % 1000), Fresh: 20_000 + i*7919%100_000, Context: 150_000})
		c.FirstToken(now, running)
		c.Leave(now, running)
		actions = c.Actions(actions[:0])
		for _, a := range actions {
			if a.Kind == Admit {
				running = a.ID
			}
		}
		c.Next()
	}
	if n := c.queue.len(); n != 1000 {
		b.Fatalf("%d are held, want 1,000", n)
	}
}

// A long prefill is taken back for a short turn and sent again, with 1,000 held.
func BenchmarkPreemption(b *testing.B) {
	c := full(1000, 100)
	for i := range 100 {
		c.Leave(int64(time.Hour), uint64(1<<20+i))
	}
	c.opt.MaxPreemptions, c.opt.MaxExtraDelay = 1<<30, 1<<50
	running := c.all[c.flight[0]].id
	var actions []Action
	now, taken := int64(time.Hour), 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := uint64(1<<30 + i)
		now += int64(time.Second)
		c.Arrive(now, Arrival{ID: id, Fresh: 100, Context: 100_000})
		c.Tick(now + 1000)
		for _, a := range c.Actions(actions[:0]) {
			if a.Kind == Preempt {
				taken++
				c.Preempted(now+2000, a.ID, 0)
			}
		}
		c.FirstToken(now+3000, id)
		c.Leave(now+4000, id)
		actions = c.Actions(actions[:0])
	}
	if st, _ := c.Status(now, running); taken == 0 || st.State == "" {
		b.Fatal("nothing was taken back")
	}
}

// A slice ends, a short turn waits, and the next slice goes after its first token, with 1,000 held.
func BenchmarkSlice(b *testing.B) {
	for _, tenants := range []int{1, 1000} {
		b.Run(strconv.Itoa(tenants)+" tenants", func(b *testing.B) {
			c := full(1000, tenants)
			c.SetFacts(cuts)
			for i := range 100 {
				c.Leave(int64(time.Hour), uint64(1<<20+i))
			}
			var actions []Action
			now, slices := int64(time.Hour), 0
			running := c.all[c.flight[0]].id
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := uint64(1<<30 + i)
				now += int64(time.Second)
				c.Arrive(now, Arrival{ID: id, Fresh: 100, Context: 100_000})
				if r := &c.all[c.byID[running]]; r.slicing.flying {
					slices++
					c.Sliced(now+1000, running, Slice{Prompt: r.slicing.cut, Cached: r.slicing.prompt})
				} else {
					c.FirstToken(now+1000, running)
					c.Leave(now+1000, running)
					c.Arrive(now+1000, Arrival{ID: running + 1<<40, Tenant: running % 1000, Fresh: 400_000, Context: 400_000})
				}
				c.FirstToken(now+3000, id)
				c.Leave(now+4000, id)
				actions = c.Actions(actions[:0])
				for _, a := range actions {
					if a.Kind == Admit {
						running = a.ID
					}
				}
				c.Next()
				c.RetryAfter(now)
			}
			if b.N > 1000 && slices < b.N/10 {
				b.Fatalf("%d slices in %d rounds", slices, b.N)
			}
		})
	}
}

func BenchmarkView(b *testing.B) {
	c := full(1000, 10)
	for b.Loop() {
		c.View()
	}
}
