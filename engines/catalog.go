package engines

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// catalog is the union of all lists of models, made anew when one changes and read without a lock.
type catalog struct {
	json    []byte
	names   []string // in the order of json
	cards   map[string][]byte
	engines map[string][]*Engine
}

// rebuildCatalog may run twice at once; both read the newest lists, and the later store cannot be older than what it read by more than a change that rebuilds again.
func (f *Fleet) rebuildCatalog() {
	f.changes.Lock()
	defer f.changes.Unlock()
	c := &catalog{cards: map[string][]byte{}, engines: map[string][]*Engine{}}
	for _, e := range f.Engines() {
		for _, m := range e.Models() {
			if c.cards[m.ID] == nil {
				c.cards[m.ID] = m.Raw
				c.names = append(c.names, m.ID)
			}
			c.engines[m.ID] = append(c.engines[m.ID], e)
		}
	}
	aliases := make([]string, 0, len(f.options().Aliases))
	for alias, target := range f.options().Aliases {
		if c.cards[alias] == nil && c.cards[target] != nil {
			aliases = append(aliases, alias)
		}
	}
	slices.Sort(aliases)
	var out bytes.Buffer
	out.WriteString(`{"object":"list","data":[`)
	for i, name := range c.names {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(c.cards[name])
	}
	for _, alias := range aliases {
		card := ownCard(alias, f.options().Aliases[alias])
		if len(c.cards) > 0 && out.Len() > len(`{"object":"list","data":[`) {
			out.WriteByte(',')
		}
		out.Write(card)
		c.cards[alias] = card
	}
	out.WriteString("]}")
	c.json = out.Bytes()
	f.catalog.Store(c)
}

// ModelsJSON is the answer to GET /v1/models: the union of what all engines list, each id once, each card as its engine wrote it. An engine that is down keeps its last list, so that clients do
// not see models come and go. Never waits (C170). Not to be changed.
func (f *Fleet) ModelsJSON() []byte { return f.catalog.Load().json }

// ModelJSON is the answer to GET /v1/models/{id}.
func (f *Fleet) ModelJSON(id string) (card []byte, ok bool) {
	card, ok = f.catalog.Load().cards[id]
	return card, ok
}

// KnownModel tells whether any engine serves a model, usable now or not: what separates 503 from 404 (C167). Aliases are not models.
func (f *Fleet) KnownModel(name string) bool { return len(f.catalog.Load().engines[name]) > 0 }

// Serving are the engines of a model, usable now or not; not to be changed.
func (f *Fleet) Serving(name string) []*Engine { return f.catalog.Load().engines[name] }

// ModelNames are all known models, for an error that lists them.
func (f *Fleet) ModelNames() []string { return f.catalog.Load().names }

// RefreshModels has all usable engines' lists read again and waits for them or for ctx, to be used once before a model is called unknown (C171). A list younger than a second is young enough, so
// a flood of unknown names costs the engines one read a second.
func (f *Fleet) RefreshModels(ctx context.Context) {
	now := f.now()
	var waits []chan struct{}
	for _, e := range f.Engines() {
		e.mu.Lock()
		if e.health.base == Ready && now.Sub(e.facts.ModelsAt) >= time.Second {
			waits = append(waits, e.modelsRead)
			e.wantModels.Store(true)
			e.nudge()
		}
		e.mu.Unlock()
	}
	for _, read := range waits {
		select {
		case <-read:
		case <-ctx.Done():
			return
		}
	}
}
