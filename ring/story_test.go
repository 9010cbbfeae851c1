package ring

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmring/warmring/ring/prompt"
)

// talk builds prompts the way the prompt package does: a head, then messages, one running fingerprint, points at the ends of
// messages and every 4,096 bytes inside, thinned by the same rule.
type talk struct {
	chain []prompt.Point
	hash  uint64
	bytes int
	kept  int
	head  int
	first int
}

func (c *talk) part(id uint64, bytes int, mark bool) {
	c.hash = join(c.hash, id)
	for part := 0; bytes > 0; part++ {
		n := min(bytes, 4096)
		bytes -= n
		c.bytes += n
		c.hash = join(c.hash, uint64(n))
		end := bytes == 0 && mark
		keep := end || c.bytes-c.kept >= min(max(c.bytes/32, 64), 4096)
		if keep {
			c.kept = c.bytes
		}
		c.chain = append(c.chain, prompt.Point{Fingerprint: c.hash, Bytes: int32(c.bytes), Keep: keep})
	}
}

// begin starts a conversation with a head (tools and system prompt) and a first user message.
func begin(head uint64, headBytes int, user uint64, userBytes int) *talk {
	c := &talk{hash: 1}
	if headBytes > 0 {
		c.part(head, headBytes, true)
	}
	c.head = len(c.chain)
	if userBytes > 0 {
		c.part(user, userBytes, true)
	}
	c.first = len(c.chain)
	return c
}

// say adds a message.
func (c *talk) say(id uint64, bytes int) *talk {
	c.part(id, bytes, false)
	return c
}

// fork is a copy that goes its own way.
func (c *talk) fork() *talk {
	f := *c
	f.chain = append([]prompt.Point(nil), c.chain...)
	return &f
}

func (c *talk) prompt() *prompt.Prompt {
	return &prompt.Prompt{
		Family: prompt.Chat, Chain: append([]prompt.Point(nil), c.chain...), Head: c.head, First: c.first, Bytes: c.bytes, Whole: c.hash,
	}
}

// world is a Placer with a clock.
type world struct {
	*Placer
	t   *testing.T
	now int64
}

func fleet(n int, kv int64) []Engine {
	var engines []Engine
	for i := range n {
		engines = append(engines, Engine{Name: fmt.Sprintf("e%d", i), KVTokens: kv, State: Ready})
	}
	return engines
}

func newWorld(t *testing.T, opt Options, engines []Engine) *world {
	w := &world{Placer: New(opt), t: t, now: int64(time.Hour)}
	w.SetEngines(w.now, engines)
	return w
}

func (w *world) sleep(d time.Duration) { w.now += int64(d) }

// start places a turn and leaves it in flight.
func (w *world) start(session uint64, c *talk, exclude ...string) (*Charge, Decision) {
	w.t.Helper()
	t := Turn{Now: w.now, Session: session, Exclude: exclude}
	if c != nil {
		t.Prompt = c.prompt()
	}
	return w.place(&t)
}

func (w *world) place(t *Turn) (*Charge, Decision) {
	w.t.Helper()
	t.Now = w.now
	var d Decision
	ch, err := w.Place(t, &d)
	if err != nil {
		w.t.Fatalf("place: %v", err)
	}
	return ch, d
}

// finish ends a turn after a prefill at 8,000 tokens/s and a second of answer.
func (w *world) finish(ch *Charge) {
	w.now += int64(ch.fresh) * int64(time.Second) / 8_000
	ch.FirstToken(w.now)
	w.sleep(time.Second)
	ch.Release(w.now, Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1, Prefilled: true})
}

// turn places a turn and finishes it.
func (w *world) turn(session uint64, c *talk) Decision {
	w.t.Helper()
	ch, d := w.start(session, c)
	w.finish(ch)
	return d
}

// settled fails the test if something is still charged.
func (w *world) settled() {
	w.t.Helper()
	g := w.Gauges()
	if g.Waiting != 0 || g.Queued != 0 || g.Running != 0 || g.Held != 0 {
		w.t.Errorf("still charged at the end: %+v", g)
	}
	w.check()
}

// check holds every count against a recount.
func (w *world) check() {
	w.t.Helper()
	if err := w.Placer.recount(); err != nil {
		w.t.Fatal(err)
	}
}
