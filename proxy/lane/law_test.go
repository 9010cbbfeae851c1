package lane

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// caller is the proxy's side as far as the laws need it: it knows where every request is, and believes nothing else.
type caller struct {
	c     *Controller
	opt   Options
	now   int64
	where map[uint64]string // held, back, sent, preempting, decoding
	long  map[uint64]bool
	size  map[uint64]int  // tokens of the prompt
	cut   map[uint64]int  // of them, in the latest slice
	slice map[uint64]bool // what was sent is one
	next  uint64
	ids   []uint64 // all ever seen, for a deterministic choice
	ends  map[string]int
	off   bool
}

func newCaller(opt Options, f Facts) *caller {
	p := &caller{c: New(opt), opt: opt.withDefaults(), where: map[uint64]string{}, long: map[uint64]bool{}, size: map[uint64]int{}, cut: map[uint64]int{}, slice: map[uint64]bool{}, ends: map[string]int{}}
	p.c.SetFacts(f)
	return p
}

func (p *caller) end(id uint64, how string) {
	delete(p.where, id)
	delete(p.long, id)
	delete(p.cut, id)
	delete(p.slice, id)
	p.ends[how]++
}

// act does what the controller wants, checking that it may be wanted.
func (p *caller) act() error {
	for _, a := range p.c.Actions(nil) {
		at := p.where[a.ID]
		switch a.Kind {
		case Admit:
			if at != "held" && at != "back" {
				return fmt.Errorf("%d is %q and admitted", a.ID, at)
			}
			p.where[a.ID] = "sent"
			if p.slice[a.ID] = a.Tokens > 0; p.slice[a.ID] {
				if a.Tokens <= p.cut[a.ID] || a.Tokens >= p.size[a.ID] {
					return fmt.Errorf("%d of %d tokens goes as a slice of %d after one of %d", a.ID, p.size[a.ID], a.Tokens, p.cut[a.ID])
				}
				p.cut[a.ID] = a.Tokens
			}
		case Preempt:
			if at != "sent" || !p.long[a.ID] {
				return fmt.Errorf("%d is %q and preempted", a.ID, at)
			}
			p.where[a.ID] = "preempting"
		case Expire:
			if at != "held" {
				return fmt.Errorf("%d is %q and expired", a.ID, at)
			}
			p.end(a.ID, "expired")
		}
	}
	return p.agree()
}

// agree compares both sides' books.
func (p *caller) agree() error {
	v := p.c.View()
	var held, back, flight, preempting, waiting, decoding int
	for id, at := range p.where {
		switch {
		case at == "held":
			held++
		case at == "back":
			back++
		case at == "preempting":
			preempting++
			flight++
		case at == "sent" && p.long[id]:
			flight++
		case at == "sent":
			waiting++
		case at == "decoding":
			decoding++
		}
	}
	if held != v.Held || back != v.Back || flight != v.InFlight || preempting != v.Preempting || waiting != v.Waiting || decoding != v.Decoding {
		return fmt.Errorf("caller: held %d back %d flight %d preempting %d waiting %d decoding %d; controller: %+v", held, back, flight, preempting, waiting, decoding, v)
	}
	if len(p.c.byID) != len(p.where) {
		return fmt.Errorf("controller knows %d requests, caller %d", len(p.c.byID), len(p.where))
	}
	if p.off {
		return nil
	}
	if held > p.opt.MaxHeld {
		return fmt.Errorf("%d held, at most %d", held, p.opt.MaxHeld)
	}
	if p.opt.Budget == 0 && flight > 1 {
		return fmt.Errorf("%d long prefills at once", flight)
	}
	if flight > maxInFlight {
		return fmt.Errorf("%d long prefills at once", flight)
	}
	if flight > 1 && v.FlightTokens > int64(p.opt.Budget) {
		return fmt.Errorf("%d tokens in prefill, budget %d", v.FlightTokens, p.opt.Budget)
	}
	if p.c.held < 0 || p.c.queue.len() == 0 && p.c.held != 0 {
		return fmt.Errorf("%d bytes in a queue of %d", p.c.held, p.c.queue.len())
	}
	if back > maxInFlight {
		return fmt.Errorf("%d requests between two runs", back)
	}
	if held+back > 0 && flight == 0 && waiting == 0 {
		return fmt.Errorf("%d held and %d back while nothing is in the way", held, back)
	}
	return nil
}

// pass lets time go by, with timers.
func (p *caller) pass(d int64) error {
	until := p.now + d
	for n := 0; ; n++ {
		at, ok := p.c.Next()
		if !ok || at > until {
			break
		}
		if at <= p.now && n > 0 {
			return fmt.Errorf("the timer stands still at %d", at)
		}
		if n > 1000 {
			return fmt.Errorf("the timer fires all the time, now at %d", at)
		}
		p.now = max(p.now, at)
		p.c.Tick(p.now)
		if err := p.act(); err != nil {
			return err
		}
	}
	p.now = until
	return nil
}

// pick is a known request in one of some places.
func (p *caller) pick(n int, places ...string) (uint64, bool) {
	for i := range p.ids {
		id := p.ids[(i+n)%len(p.ids)]
		for _, place := range places {
			if p.where[id] == place {
				return id, true
			}
		}
	}
	return 0, false
}

// step does one thing, chosen by two bytes.
func (p *caller) step(op, arg byte) error {
	n := int(arg)
	switch op % 12 {
	case 0, 1:
		p.next++
		id, fresh := p.next, n*10
		if op%12 == 1 {
			fresh = 5000 + n*n*10
		}
		p.ids = append(p.ids, id)
		isLong := !p.off && fresh >= p.c.Border()
		p.size[id] = fresh * 2
		switch p.c.Arrive(p.now, Arrival{ID: id, Tenant: uint64(arg % 3), Fresh: fresh, Context: fresh * 2, NoSlices: n%11 == 0, NoPreempt: n%13 == 0, Bytes: n}) {
		case Go:
			if !p.off {
				p.where[id], p.long[id] = "sent", isLong
			}
		case Held:
			if !isLong {
				return fmt.Errorf("%d is interactive and held", id)
			}
			p.where[id], p.long[id] = "held", true
		case Full:
			p.end(id, "full")
		}
	case 2, 3:
		id, ok := p.pick(n, "sent")
		if op%12 == 3 {
			id, ok = p.pick(n, "preempting")
		}
		if !ok || p.slice[id] {
			return nil
		}
		p.where[id] = "decoding"
		p.c.FirstToken(p.now, id)
	case 4:
		if id, ok := p.pick(n, "preempting"); ok {
			p.where[id] = "back"
			p.c.Preempted(p.now, id, n*100-500)
		}
	case 5:
		if id, ok := p.pick(n, "decoding", "sent", "held", "back", "preempting"); ok {
			p.end(id, "left")
			p.c.Leave(p.now, id)
		} else {
			p.c.Leave(p.now, uint64(n))
		}
	case 6, 7:
		return p.pass(int64(n) * int64(n) * int64(time.Millisecond) / 10)
	case 8:
		f := Facts{PrefillRate: float64(n) * 100, StepSeconds: float64(n%8) / 20, CanPreempt: n%5 > 0, Slices: n%3 > 0, KeepsStep: n%2 == 0, Kept: float64(n%4) / 3}
		p.c.SetFacts(f)
		p.c.Tick(p.now)
	case 10, 11:
		id, ok := p.pick(n, "sent", "preempting")
		if !ok {
			return nil
		}
		if !p.slice[id] {
			p.c.Sliced(p.now, id, Slice{}) // means nothing
			break
		}
		p.where[id] = "back"
		s := Slice{Prompt: p.cut[id], Cached: p.cut[id] * n / 256, Failed: n%17 == 0, Refused: n%34 == 0}
		if n%7 == 0 {
			s = Slice{Prompt: -1, Cached: -1}
		}
		p.c.Sliced(p.now, id, s)
	case 9:
		if n < 200 {
			id := uint64(n) // a word about something unknown, or in a place where it means nothing
			if at := p.where[id]; at == "" || at == "decoding" {
				p.c.FirstToken(p.now, id)
				p.c.Preempted(p.now, id, n)
				p.c.Committed(p.now, id)
				p.c.Sliced(p.now, id, Slice{Prompt: n, Cached: n})
			}
			break
		}
		opt := Options{Budget: (n % 4) * 50_000, Off: n%9 == 0, NoSlices: n%5 == 0, MaxHeldBytes: int64(n), MaxHeld: p.opt.MaxHeld, Share: p.opt.Share, MaxWait: p.opt.MaxWait}
		// What is in flight stays there though the budget shrinks: let it end first.
		for {
			id, ok := p.pick(0, "sent", "preempting")
			if !ok {
				break
			}
			p.end(id, "left")
			p.c.Leave(p.now, id)
			if err := p.act(); err != nil {
				return err
			}
		}
		p.c.SetOptions(p.now, opt)
		p.opt = opt.withDefaults()
		p.off = true // until those that were let go have gone
		if err := p.act(); err != nil {
			return err
		}
		p.off = p.opt.Off
		if p.off {
			return nil
		}
	}
	return p.act()
}

// finish lets everybody end and looks for what is left.
func (p *caller) finish() error {
	for {
		id, ok := p.pick(0, "decoding", "sent", "held", "back", "preempting")
		if !ok {
			break
		}
		p.end(id, "left")
		p.c.Leave(p.now, id)
		p.off = true
		if err := p.act(); err != nil {
			return err
		}
	}
	if v := p.c.View(); v.Held+v.Back+v.InFlight+v.Waiting+v.Decoding+v.Tenants != 0 || v.HeldTokens+v.FlightTokens != 0 {
		return fmt.Errorf("something is left: %+v", v)
	}
	if p.c.waiting[0].n+p.c.waiting[1].n+p.c.queue.len()+len(p.c.queue.slots)+len(p.c.spare) != len(p.c.all) {
		return fmt.Errorf("the slab leaks")
	}
	return nil
}

func events(data []byte) error {
	var opt Options
	if len(data) > 2 {
		opt = Options{MaxHeld: int(data[0]%16) + 1, Share: float64(data[1]) / 255, MaxWait: time.Duration(data[2]) * 100 * time.Millisecond}
		data = data[2:]
	}
	f := quick
	f.Slices = len(data)%2 == 0
	p := newCaller(opt, f)
	for ; len(data) >= 2; data = data[2:] {
		if err := p.step(data[0], data[1]); err != nil {
			return err
		}
	}
	return p.finish()
}

// Whatever happens in whatever order: actions make sense where the request is, both sides' books agree, bounds hold, nothing
// waits for nothing, and in the end nothing is left.
func TestAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := events(rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "events")); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte{4, 128, 50, 1, 100, 0, 1, 6, 40, 4, 0, 2, 0, 6, 50, 5, 0})
	f.Add([]byte{1, 255, 1, 1, 200, 1, 200, 1, 9, 0, 1, 9, 225, 6, 255, 8, 3, 3, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			return
		}
		if err := events(data); err != nil {
			t.Fatal(err)
		}
		// And words without sense, times that run backwards, the largest numbers.
		c := New(Options{})
		c.SetFacts(quick)
		for ; len(data) >= 10; data = data[10:] {
			id, x := uint64(data[1]%8), int64(binary.LittleEndian.Uint64(data[2:]))
			now := x % (1 << 50)
			switch data[0] % 9 {
			case 0, 1:
				c.Arrive(now, Arrival{ID: id, Tenant: id % 3, Fresh: int(x % (1 << 40)), Context: int(x >> 20), Unstreamed: data[1] > 100})
			case 2:
				c.FirstToken(now, id)
			case 3:
				c.Leave(now, id)
			case 4:
				c.Preempted(now, id, int(x))
			case 5:
				c.Tick(now)
			case 6:
				c.SetFacts(Facts{PrefillRate: float64(x), StepSeconds: float64(x % 1000), CanPreempt: true, Slices: data[1] > 100, ShortBehindLong: float64(x % 7)})
			case 8:
				c.Sliced(now, id, Slice{Prompt: int(x), Cached: int(x >> 8), Failed: data[1] > 200})
			case 7:
				c.SetOptions(now, Options{Budget: int(x), Border: int(x % 4096), Share: float64(x), MaxHeld: int(x % 8), Target: time.Duration(x)})
			}
			c.Next()
			c.View()
			c.RetryAfter(now)
		}
	})
}
