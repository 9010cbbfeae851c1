package proxy

import (
	"slices"
	"sync"
	"time"

	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/gossip"
)

// The lanes of one proxy know nothing of the others' requests. So a proxy whose short turn waits behind prefills that others have sent
// tells those, again and again until it has its first token, and then that it waits no more. It names the engine and its own turn, not a
// victim: which prefill is in the way, and whether it may be taken back, the others know better, and as of now. Nobody waits for an
// answer. A message that is lost costs waiting only, one that comes twice changes nothing.

// plea is one short turn's asking.
type plea struct {
	engine string
	turn   uint64
	above  int64 // who has more fresh tokens than that waiting there is in its way
	from   int64 // it asks no sooner than that
	until  int64 // it asks no longer than that

	mu      sync.Mutex // held while a word goes out: what is said of a turn is said in order
	over    bool
	members []string // that were asked
}

const (
	pleaEvery = 150 * time.Millisecond // between two words of a turn; they count for much longer than that
	// pleaAfter is how long a turn waits before its first word. Most turns beside other proxies' work are served sooner, and asking for each
	// of them took the budget from the news of where sessions live: before fast engines up to half of the sessions that raced with it split.
	pleaAfter = 200 * time.Millisecond
	pleaLimit = 10 * time.Second // a turn that waits for longer is not helped by more words
	maxPleas  = 16               // turns that ask at a time, for each engine: more of them would not change what the others do
	maxWaits  = 1024             // turns that wait for their turn to ask
)

// pleas are the own short turns that wait behind prefills of other proxies. Its timer runs only while there are any.
type pleas struct {
	mu    sync.Mutex
	list  []*plea // oldest first
	timer *time.Timer
}

// others finds out which proxies' work is in a request's way on its engine: above how many tokens of it a turn should not wait, and
// who has as much. What is waiting there at all keeps the request from teaching anything.
func (r *request) others(a *lane.Arrival) (above int64, waiters []gossip.Waiter) {
	c := r.s.cluster.Load()
	if c == nil {
		return 0, nil
	}
	target := max(r.charge.PrefillRate(), 0) * r.settings.Lanes.Target.Std().Seconds()
	waiters = c.Waiters(r.up.Name, int64(target/unnoticed))
	a.Shared = len(waiters) > 0
	return max(int64(target), int64(4*a.Fresh)-1), waiters
}

// unnoticed is the part of lanes.target for which the work of others does not count as in the way of a turn from which is learned.
const unnoticed = 20

// askOthers lets a turn ask, soon, if somebody's work is in its way.
func (r *request) askOthers(above int64, waiters []gossip.Waiter) {
	if len(waiters) == 0 || waiters[0].Tokens <= above || r.charge.PrefillRate() <= 0 {
		return
	}
	s, now := r.s, r.s.now()
	p := &plea{engine: r.up.Name, turn: r.lane.id, above: above, from: now + int64(pleaAfter), until: now + int64(pleaLimit)}
	s.pleas.mu.Lock()
	defer s.pleas.mu.Unlock()
	if len(s.pleas.list) >= maxWaits {
		return
	}
	r.lane.plea = p
	s.pleas.list = append(s.pleas.list, p)
	if len(s.pleas.list) > 1 {
		return
	}
	if s.pleas.timer == nil {
		s.pleas.timer = time.AfterFunc(pleaAfter, s.plead)
	} else {
		s.pleas.timer.Reset(pleaAfter)
	}
}

// say sends a word to each whose work is in the way as of now. It does not wait for answers.
func (p *plea) say(c *gossip.Cluster, waiters []gossip.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	for _, w := range waiters {
		switch {
		case w.Tokens <= p.above:
		case slices.Contains(p.members, w.Member):
			c.PreemptAgain(w.Member, p.engine, p.turn)
		default:
			p.members = append(p.members, w.Member)
			c.Preempt(w.Member, p.engine, p.turn, nil)
		}
	}
}

// end tells those who were asked that the turn waits no more.
func (p *plea) end(c *gossip.Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, member := range p.members {
		c.PreemptOver(member, p.engine, p.turn)
	}
}

// plead lets those that still wait say so. Requests come and go meanwhile: nothing is sent with the list's lock held.
func (s *Server) plead() {
	c := s.cluster.Load()
	for _, p := range s.pleas.due(s.now()) {
		p.say(c, c.Waiters(p.engine, p.above))
	}
}

// due are the turns whose time it is to ask, and sets the timer for the next ones.
func (l *pleas) due(now int64) (due []*plea) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := make(map[string]int)
	l.list = slices.DeleteFunc(l.list, func(p *plea) bool { return p.until <= now })
	for _, p := range l.list {
		if p.from > now {
			continue
		}
		if asked[p.engine]++; asked[p.engine] <= maxPleas {
			due = append(due, p)
		}
	}
	if len(l.list) > 0 {
		l.timer.Reset(pleaEvery)
	}
	return due
}

// stopAsking tells those who were asked that the turn waits no more.
func (r *request) stopAsking() {
	p := r.lane.plea
	if p == nil {
		return
	}
	r.lane.plea = nil
	s := r.s
	s.pleas.mu.Lock()
	if at := slices.Index(s.pleas.list, p); at >= 0 {
		s.pleas.list = slices.Delete(s.pleas.list, at, at+1)
	}
	s.pleas.mu.Unlock()
	p.end(s.cluster.Load())
}
