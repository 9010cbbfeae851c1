package sim

import "container/heap"

// Timeline runs cores and callbacks on one virtual clock in the caller's goroutine. What happens at the
// same instant happens in the order in which it was asked for, so a run is reproducible.
type Timeline struct {
	now   int64
	seq   int64
	queue timelineQueue
}

// Station is a core on a Timeline.
type Station struct {
	Core *Core
	// OnEvent is told of every event, at the time it happens; it may submit, abort and schedule. Nil
	// drops events.
	OnEvent func(now int64, e Event)

	line    *Timeline
	pending bool
}

type timelineItem struct {
	at, seq int64
	do      func(now int64)
}

// Now is the virtual time in ns, from 0.
func (t *Timeline) Now() int64 { return t.now }

// At schedules a callback; a time that has passed means now.
func (t *Timeline) At(when int64, do func(now int64)) {
	t.seq++
	heap.Push(&t.queue, timelineItem{at: max(when, t.now), seq: t.seq, do: do})
}

// Add puts a core on the clock.
func (t *Timeline) Add(core *Core, onEvent func(now int64, e Event)) *Station {
	return &Station{Core: core, OnEvent: onEvent, line: t}
}

// NextEvent is the time of the next thing to happen.
func (t *Timeline) NextEvent() (at int64, ok bool) {
	if len(t.queue) == 0 {
		return 0, false
	}
	return t.queue[0].at, true
}

// Run lets everything happen that is due by until, and everything that follows from it by then. It
// ends earlier when nothing is left to happen.
func (t *Timeline) Run(until int64) {
	for len(t.queue) > 0 && t.queue[0].at <= until {
		item := heap.Pop(&t.queue).(timelineItem)
		t.now = item.at
		item.do(t.now)
	}
}

// Submit gives the station's core a request at the present time.
func (s *Station) Submit(r Request) error {
	if err := s.Core.Submit(r); err != nil {
		return err
	}
	s.wake()
	return nil
}

// Abort asks the station's core to drop a request.
func (s *Station) Abort(id string) bool {
	ok := s.Core.Abort(id)
	s.wake()
	return ok
}

func (s *Station) wake() {
	at, ok := s.Core.NextEvent(s.line.now)
	if s.pending || !ok {
		return
	}
	s.pending = true
	s.line.At(at, s.step)
}

func (s *Station) step(now int64) {
	s.pending = false
	d, events := s.Core.Step(now)
	if d > 0 {
		s.pending = true
		s.line.At(now+int64(d), s.step)
	}
	if s.OnEvent == nil {
		return
	}
	for _, e := range events {
		s.OnEvent(now, e)
	}
}

type timelineQueue []timelineItem

func (q timelineQueue) Len() int { return len(q) }
func (q timelineQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q timelineQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timelineQueue) Push(x any)   { *q = append(*q, x.(timelineItem)) }
func (q *timelineQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = timelineItem{}
	*q = (*q)[:last]
	return x
}
