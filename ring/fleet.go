package ring

import (
	"fmt"
	"slices"
	"strings"
)

// maxEngines bounds the engines known at once; slots are 16 bits.
const maxEngines = 1<<16 - 1

// SetEngines tells the Placer the whole list of engines. Names that stay keep their charges, index and bindings; those that
// go lose them, and their sessions are re-placed when they come back. Rings are rebuilt only when a name, a weight or a list
// of models changed, and while that takes (0.1 s for thousands of engines) decisions go on with the old ones. Of two
// engines with one name the first counts; beyond 65,535 engines the rest is left out.
func (p *Placer) SetEngines(now int64, engines []Engine) {
	p.setting.Lock()
	defer p.setting.Unlock()

	sorted := slices.Clone(engines)
	slices.SortStableFunc(sorted, func(a, b Engine) int { return strings.Compare(a.Name, b.Name) })
	sorted = slices.CompactFunc(sorted, func(a, b Engine) bool { return a.Name == b.Name })
	if len(sorted) > maxEngines {
		sorted = sorted[:maxEngines]
	}

	changed, slots := p.addEngines(now, sorted)
	var l *layout
	if changed {
		l = newLayout(p.opt.VirtualNodes, sorted, slots)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil {
		p.layout = l
		p.rebindModels()
	}
	stays := make([]bool, len(p.engines))
	for i, slot := range slots {
		stays[slot] = true
		p.updateEngine(p.engines[slot], sorted[i])
	}
	for slot, e := range p.engines {
		if e != nil && !stays[slot] {
			p.removeEngine(e)
		}
	}
	for _, pool := range p.layout.pools {
		pool.update(p.engines)
	}
}

// addEngines gives new engines their slots and tells whether the rings have to be rebuilt.
func (p *Placer) addEngines(now int64, sorted []Engine) (changed bool, slots []uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	changed = p.layout == nil || len(sorted) != len(p.byName)
	slots = make([]uint16, len(sorted))
	for i := range sorted {
		told := &sorted[i]
		told.Models = slices.Clone(told.Models)
		e := p.byName[told.Name]
		if e == nil || e.Weight != told.Weight || !sameModels(e.Models, told.Models) {
			changed = true
		}
		if e == nil {
			e = p.addEngine(*told)
		}
		slots[i] = e.slot
	}
	return changed, slots
}

func sameModels(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

func (p *Placer) addEngine(told Engine) *engine {
	slot := p.freeSlot()
	p.generations[slot]++
	e := &engine{Engine: told, slot: slot, generation: p.generations[slot]}
	e.capacity = p.opt.DefaultKVTokens
	if told.KVTokens > 0 {
		e.capacity = told.KVTokens
	}
	p.engines[slot] = e
	p.byName[told.Name] = e
	p.index.caches[slot].capacity = e.capacity
	return e
}

// updateEngine takes over what was told of an engine. A capacity that was learned gives way to a reported one only.
func (p *Placer) updateEngine(e *engine, told Engine) {
	switch {
	case told.KVTokens > 0:
		e.capacity = told.KVTokens
	case e.KVTokens > 0:
		e.capacity = p.opt.DefaultKVTokens
	}
	e.Engine = told
	p.index.caches[e.slot].capacity = e.capacity
	p.index.shrink(e.slot)
}

// freeSlot returns the lowest slot that is free.
func (p *Placer) freeSlot() uint16 {
	if i := slices.Index(p.engines, nil); i >= 0 {
		return uint16(i)
	}
	p.engines = append(p.engines, nil)
	p.generations = append(p.generations, 0)
	p.index.caches = append(p.index.caches, cache{})
	return uint16(len(p.engines) - 1)
}

// removeEngine forgets an engine. Its charges still in flight settle with the record that they hold.
func (p *Placer) removeEngine(e *engine) {
	e.State = Down
	p.index.clear(e.slot)
	p.index.caches[e.slot] = cache{}
	p.engines[e.slot] = nil
	delete(p.byName, e.Name)
}

// Forget drops what is believed of an engine's cache: it was restarted, or its cache was reset.
func (p *Placer) Forget(now int64, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	if e := p.byName[name]; e != nil {
		p.index.clear(e.slot)
		e.suspect, e.uncached, e.coldSince = 0, 0, p.now
		p.totals.Forgotten++
	}
}

// model returns what is known of a model name, nil if no engine serves it.
func (p *Placer) model(name []byte) *model {
	if m := p.models[string(name)]; m != nil {
		if m.pool == nil {
			return nil
		}
		return m
	}
	l := p.layout
	if l == nil {
		return nil
	}
	pool := l.any
	if len(name) == 0 {
		pool = l.all
	}
	if pool == nil {
		return nil
	}
	if p.learned >= p.opt.MaxModels {
		p.other.pool = pool
		return &p.other
	}
	p.learned++
	m := &model{pool: pool, bytesPerToken: p.opt.DefaultBytesPerToken}
	p.models[string(name)] = m
	return m
}

// rebindModels gives the model names the pools of a new layout. What was learned of a name stays while it is served.
func (p *Placer) rebindModels() {
	for name, m := range p.models {
		switch {
		case p.layout.models[name] != nil:
		case m.listed:
			delete(p.models, name)
		case name == "":
			m.pool = p.layout.all
		default:
			m.pool = p.layout.any
		}
	}
	for name, pool := range p.layout.models {
		m := p.models[name]
		if m == nil {
			m = &model{bytesPerToken: p.opt.DefaultBytesPerToken}
			p.models[name] = m
		} else if !m.listed {
			p.learned--
		}
		m.pool, m.listed = pool, true
	}
}

// Homes returns the first n engines of the ring from a key, for a model, whatever their state: the key's home and its
// second choices.
func (p *Placer) Homes(model []byte, key uint64, n int) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.model(model)
	if m == nil {
		return nil, fmt.Errorf("homes of %016x for model %q: %w", key, model, ErrUnknownModel)
	}
	var names []string
	pool := m.pool
	n = min(n, len(pool.engines))
	for i := pool.ring.find(key); len(names) < n; i = pool.ring.after(i) {
		if name := p.engines[pool.engines[pool.ring.owners[i]]].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
