package ring

import (
	"maps"
	"slices"
	"strings"
)

// pool is the set of engines that serve the same models. Each has its own ring, so that a decision never looks at an engine
// that cannot serve it: its cost depends neither on the number of engines nor on how they share the models out.
type pool struct {
	ring    *hashRing
	engines []uint16 // slots by ring member
	open    []uint16 // those that take new sessions gladly, in ring member order
	busy    []uint16 // those that take turns as a last resort
	member  []bool   // by slot
}

// update sorts the engines by what they take now.
func (p *pool) update(engines []*engine) {
	p.open, p.busy = p.open[:0], p.busy[:0]
	for _, slot := range p.engines {
		switch s := engines[slot].State; {
		case s == Busy:
			p.busy = append(p.busy, slot)
		case s.takesTurns():
			p.open = append(p.open, slot)
		}
	}
}

// layout is everything that depends on names, weights and models alone. It is rebuilt when one of these changes, which is rare,
// and not when an engine's state does.
type layout struct {
	models map[string]*pool // names that some engine lists
	any    *pool            // engines that serve any name; nil if there are none
	all    *pool            // all engines, for bodies that name no model
	pools  []*pool
}

// newLayout builds rings for all model names, one for each distinct set of engines. Engines come sorted by name, with their
// slots.
func newLayout(perUnit int, engines []Engine, slots []uint16) *layout {
	l := &layout{models: map[string]*pool{}}
	sets := map[string]*pool{}
	add := func(indexes []int) *pool {
		if len(indexes) == 0 {
			return nil
		}
		var id strings.Builder
		for _, i := range indexes {
			id.WriteByte(byte(i))
			id.WriteByte(byte(i >> 8))
		}
		if p := sets[id.String()]; p != nil {
			return p
		}
		p := &pool{engines: make([]uint16, len(indexes))}
		members := make([]member, len(indexes))
		for at, i := range indexes {
			p.engines[at] = slots[i]
			members[at] = member{engines[i].Name, engines[i].Weight}
		}
		p.ring = newHashRing(perUnit, members)
		p.member = make([]bool, int(slices.Max(p.engines))+1)
		for _, slot := range p.engines {
			p.member[slot] = true
		}
		sets[id.String()] = p
		l.pools = append(l.pools, p)
		return p
	}
	var every, generous []int
	byModel := map[string][]int{}
	for i, e := range engines {
		every = append(every, i)
		if e.Models == nil {
			generous = append(generous, i)
		}
		for _, m := range e.Models {
			byModel[m] = nil
		}
	}
	for i, e := range engines {
		if e.Models == nil {
			for m := range byModel {
				byModel[m] = append(byModel[m], i)
			}
			continue
		}
		for _, m := range e.Models {
			if s := byModel[m]; len(s) == 0 || s[len(s)-1] != i {
				byModel[m] = append(s, i)
			}
		}
	}
	names := slices.Sorted(maps.Keys(byModel))
	for _, m := range names {
		l.models[m] = add(byModel[m])
	}
	l.any, l.all = add(generous), add(every)
	return l
}

// serves tells whether an engine belongs to the pool.
func (p *pool) serves(e *engine) bool {
	return int(e.slot) < len(p.member) && p.member[e.slot]
}
