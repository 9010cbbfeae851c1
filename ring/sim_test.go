package ring

import (
	"bufio"
	"compress/gzip"
	"container/heap"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/warmring/warmring/ring/prompt"
)

// A closed loop of recorded coding sessions on simulated engines, to hold the policy against random placement, against plain
// hashing and against what no placement can better. It is a regression test of the policy, not a study of engines: one
// prefill after the other at 10,000 tokens/s, a cache that drops its least recently used blocks, no interference of decodes.

type recorded struct {
	ID  string `json:"id"`
	Req []struct {
		In    int      `json:"i"`
		Out   int      `json:"o"`
		Think float64  `json:"k"`
		Runs  [][2]int `json:"h"`
	} `json:"req"`
}

func readSessions(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open("testdata/claude_code_sessions.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []recorded
	for lines := bufio.NewReader(z); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return out
		}
		var r recorded
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

const (
	blockTokens  = 256 // four recorded blocks
	commonBlocks = 60  // 15,000 tokens that all sessions share
	simBytes     = 3.6 * blockTokens
	prefillRate  = 10_000.0
	secondsPerTk = 0.02
	maxThink     = 300
)

// lane plays sessions one after the other.
type lane struct {
	id      int
	session *recorded
	next    int // request
	key     uint64
	blocks  []uint64 // chain of the current prompt
	out     int
}

// simEngine serves one prefill at a time, and has a cache of blocks.
type simEngine struct {
	busy     bool
	queue    []*simTurn
	capacity int // blocks
	cached   map[uint64]*block
	oldest   block // ends of the list
	waiting  int
}

type block struct {
	id           uint64
	older, newer *block
}

func newSimEngine(capacity int) *simEngine {
	e := &simEngine{capacity: capacity, cached: map[uint64]*block{}}
	e.oldest.older, e.oldest.newer = &e.oldest, &e.oldest
	return e
}

// prefill returns how many leading blocks are cached, and caches all: the tail is touched first, the head last.
func (e *simEngine) prefill(blocks []uint64) (hit int) {
	for hit < len(blocks) && e.cached[blocks[hit]] != nil {
		hit++
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		b := e.cached[blocks[i]]
		if b == nil {
			b = &block{id: blocks[i]}
			e.cached[b.id] = b
		} else {
			b.older.newer, b.newer.older = b.newer, b.older
		}
		b.newer, b.older = &e.oldest, e.oldest.older
		b.older.newer, e.oldest.older = b, b
	}
	for len(e.cached) > e.capacity {
		b := e.oldest.newer
		b.older.newer, b.newer.older = b.newer, b.older
		delete(e.cached, b.id)
	}
	return hit
}

type simTurn struct {
	lane   *lane
	charge *Charge
	hit    int
	engine int
}

type event struct {
	at   float64
	seq  int
	what func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

type simulation struct {
	now      float64
	queue    events
	seq      int
	engines  []*simEngine
	sessions []recorded
	random   *rand.Rand
	played   int
	choose   func(l *lane) (int, *Charge)
	seen     map[uint64]bool // what an endless cache would hold

	turns, tokens, hits, ideal int
	working                    float64 // sum over turns of the live lanes' context
	lanes                      []*lane
	moves                      int
	work                       []int
}

func (s *simulation) after(d float64, f func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + d, s.seq, f})
}

// take gives a lane its next request's prompt; a finished session is followed by another.
func (s *simulation) take(l *lane) float64 {
	if l.session == nil || l.next == len(l.session.Req) {
		l.session = &s.sessions[s.random.IntN(len(s.sessions))]
		s.played++
		l.key = mix(uint64(s.played))
		l.next = int(float64(len(l.session.Req)) * (0.25 + s.random.Float64()/2))
	}
	r := l.session.Req[l.next]
	l.next++
	l.blocks = l.blocks[:0]
	id, n := uint64(1), 0
	for _, run := range r.Runs {
		for b := run[0]; b < run[0]+run[1]; b++ {
			id = join(id, uint64(b))
			if n++; n%4 == 0 {
				at := id
				if len(l.blocks) < commonBlocks {
					at = uint64(len(l.blocks) + 1)
				} else {
					at = join(at, l.key)
				}
				l.blocks = append(l.blocks, at)
			}
		}
	}
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, 1)
	}
	l.out = r.Out
	return min(r.Think, maxThink)
}

// prompt is what the proxy sees of a lane's request.
func (l *lane) prompt() *prompt.Prompt {
	p := &prompt.Prompt{Family: prompt.Chat, Head: min(commonBlocks, len(l.blocks)), First: min(commonBlocks+2, len(l.blocks))}
	kept := 0.0
	for i, id := range l.blocks {
		bytes := float64(i+1) * simBytes
		keep := i+1 == p.Head || i+1 == p.First || bytes-kept >= min(max(bytes/32, 64), 4096)
		if keep {
			kept = bytes
		}
		p.Chain = append(p.Chain, prompt.Point{Fingerprint: id, Bytes: int32(bytes), Keep: keep})
	}
	p.Bytes, p.Whole = int(p.Chain[len(p.Chain)-1].Bytes), l.blocks[len(l.blocks)-1]
	return p
}

func (s *simulation) arrive(l *lane) {
	s.turns++
	s.tokens += len(l.blocks)
	for _, b := range l.blocks {
		if !s.seen[b] {
			break
		}
		s.ideal++
	}
	for _, b := range l.blocks {
		s.seen[b] = true
	}
	for _, o := range s.lanes {
		s.working += float64(len(o.blocks))
	}
	t := &simTurn{lane: l}
	t.engine, t.charge = s.choose(l)
	e := s.engines[t.engine]
	e.queue = append(e.queue, t)
	e.waiting += len(l.blocks)
	s.serve(e)
}

func (s *simulation) serve(e *simEngine) {
	if e.busy || len(e.queue) == 0 {
		return
	}
	t := e.queue[0]
	e.queue = e.queue[1:]
	e.busy = true
	t.hit = e.prefill(t.lane.blocks)
	s.hits += t.hit
	fresh := (len(t.lane.blocks) - t.hit) * blockTokens
	s.work[t.engine] += fresh
	tokens := len(t.lane.blocks) * blockTokens
	s.after(0.01+float64(fresh)/prefillRate, func() {
		e.busy = false
		if t.charge != nil {
			t.charge.FirstToken(int64(s.now * 1e9))
		}
		s.serve(e)
		s.after(float64(t.lane.out)*secondsPerTk, func() {
			if t.charge != nil {
				t.charge.Release(int64(s.now*1e9), Outcome{PromptTokens: tokens, CachedTokens: t.hit * blockTokens, OutputTokens: t.lane.out, Prefilled: true})
			}
			s.after(s.take(t.lane), func() { s.arrive(t.lane) })
		})
	})
}

const (
	simEngines = 4
	simLanes   = 12 * simEngines
)

// simulate plays the sessions for half an hour under a policy and returns the shares of blocks that were cached.
func simulate(sessions []recorded, seed uint64, capacity int, policy func(s *simulation) func(*lane) (int, *Charge)) *simulation {
	s := &simulation{sessions: sessions, random: rand.New(rand.NewPCG(seed, 1)), seen: map[uint64]bool{}, work: make([]int, simEngines)}
	for range simEngines {
		s.engines = append(s.engines, newSimEngine(capacity))
	}
	s.choose = policy(s)
	for i := range simLanes {
		l := &lane{id: i}
		s.lanes = append(s.lanes, l)
		s.take(l)
		s.after(s.random.Float64()*60, func() { s.arrive(l) })
	}
	for len(s.queue) > 0 && s.now < 1800 {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.what()
	}
	return s
}
