package ring

import "fmt"

// recount checks the invariants of all structures against a slow count.
func (p *Placer) recount() error {
	if err := p.index.recount(); err != nil {
		return err
	}
	t := &p.sessions
	context, bound := map[ref]int64{}, map[ref]int{}
	n, users := 0, 0
	for _, l := range []*list{&t.active, &t.idle} {
		count := 0
		newer := int64(1<<63 - 1)
		for i := l.newest; i != none; i = t.all.at(i).older {
			s := t.all.at(i)
			count++
			if s.active != (l == &t.active) {
				return fmt.Errorf("session %x is in the wrong list", s.key)
			}
			if s.seen > newer {
				return fmt.Errorf("sessions are out of order")
			}
			newer = s.seen
			if s.active {
				context[s.engine] += int64(s.context)
			}
			bound[s.engine]++
			if t.find(s.key) != i {
				return fmt.Errorf("session %x is not found by its key", s.key)
			}
			if s.head != none {
				users++
			}
		}
		if count != l.n {
			return fmt.Errorf("list of %d sessions says %d", count, l.n)
		}
		n += count
	}
	if n != t.all.len() || n != t.byKey.n {
		return fmt.Errorf("%d sessions in lists, %d in slab, %d in table", n, t.all.len(), t.byKey.n)
	}
	for i := uint32(1); i < t.heads.used; i++ {
		users -= int(t.heads.at(i).users)
	}
	if users != 0 {
		return fmt.Errorf("heads have %d users too few", users)
	}
	for _, e := range p.engines {
		if e == nil {
			continue
		}
		if e.context != context[e.ref()] || e.sessions != bound[e.ref()] {
			return fmt.Errorf("engine %s: context %d, sessions %d, counted %d, %d", e.Name, e.context, e.sessions, context[e.ref()], bound[e.ref()])
		}
		if e.waiting < 0 || e.queued < 0 || e.running < 0 || e.held < 0 {
			return fmt.Errorf("engine %s: negative gauge %+v", e.Name, e)
		}
	}
	return nil
}

func (x *index) recount() error {
	total, entries, runs := int64(0), 0, 0
	for slot := range x.caches {
		c := &x.caches[slot]
		tokens, points := int64(0), 0
		seen := map[uint32]bool{}
		children := map[uint32]uint32{}
		for r := c.newest; r != none; r = x.runs.at(r).older {
			run := x.runs.at(r)
			seen[r] = true
			runs++
			if run.parent != none {
				children[run.parent]++
				if !seen[run.parent] {
					return fmt.Errorf("engine %d: run %d is newer than its parent %d", slot, r, run.parent)
				}
				if x.runs.at(run.parent).used < run.used {
					return fmt.Errorf("engine %d: run %d was used later than its parent", slot, r)
				}
			}
			i := run.last
			if i == none {
				return fmt.Errorf("empty run")
			}
			for ; i != none && x.entries.at(i).run == r; i = x.entries.at(i).before {
				e := x.entries.at(i)
				points++
				tokens += int64(e.tokens)
				if int(e.engine) != slot || x.find(e.fingerprint, e.engine) != i {
					return fmt.Errorf("entry %d is not found", i)
				}
			}
			if i != none && x.entries.at(i).run != run.parent {
				return fmt.Errorf("run %d hangs on another run than its parent", r)
			}
			if i == none && run.parent != none {
				return fmt.Errorf("run %d has lost its parent", r)
			}
			if i != none && x.runs.at(run.parent).last != i {
				return fmt.Errorf("run %d hangs in the middle of its parent", r)
			}
		}
		for r := range seen {
			if x.runs.at(r).children != children[r] {
				return fmt.Errorf("run %d has %d children, says %d", r, children[r], x.runs.at(r).children)
			}
		}
		if tokens != c.tokens || points != c.points {
			return fmt.Errorf("engine %d: %d tokens in %d points, counted %d in %d", slot, c.tokens, c.points, tokens, points)
		}
		total += tokens
		entries += points
	}
	if total != x.tokens || entries != x.entries.len() || entries != x.pairs.n || runs != x.runs.len() {
		return fmt.Errorf("index: %d tokens in %d entries (%d in table), %d runs; counted %d, %d, %d", x.tokens, x.entries.len(), x.pairs.n, x.runs.len(), total, entries, runs)
	}
	lists := 0
	for i := uint32(1); i < x.entries.used; i++ {
		e := x.entries.at(i)
		if e.back&listHead == 0 {
			continue
		}
		lists++
		n, back := 0, uint32(none)
		for j := i; j != none; j = x.entries.at(j).same {
			if n++; back != none && x.entries.at(j).back != back {
				return fmt.Errorf("broken list of holders")
			}
			back = j
		}
		if uint32(n)|listHead != e.back || x.holders(e.fingerprint) != i {
			return fmt.Errorf("list of %d holders says %d", n, e.back&^listHead)
		}
	}
	if lists != x.heads.n {
		return fmt.Errorf("%d lists of holders, %d in table", lists, x.heads.n)
	}
	return nil
}
