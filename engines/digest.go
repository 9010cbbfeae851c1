package engines

import (
	"hash/fnv"
	"time"
)

// Several proxies in front of one fleet need not all read the same pages: one reads them and tells the others what it found. Health is
// not among it: each proxy asks for that itself, and whatever in a digest would change what is done with an engine is looked at first.

// Digest is what one proxy found on an engine's pages, for other proxies.
type Digest struct {
	Age      time.Duration // since it was read
	Running  int           // requests in the engine's own words; -1 = unknown
	Waiting  int           // -1 = unknown
	KVUsage  float64       // 0 to 1; -1 = unknown
	KVTokens int64         // as reported; 0 = unknown
	Start    int64         // of its process, Unix seconds; 0 = unknown
	Work     int64         // a counter that only a restart sets back; -1 = unknown
	Source   uint8         // the page that Work is from: counters of two pages cannot be compared
	Models   uint32        // hash of the names it lists; 0 = unknown
}

// superfluous is how much newer than the own reading a digest must be: it may have been under way while the page was read here.
const superfluous = 250 * time.Millisecond

// mostTurns bounds how long a proxy leaves an engine to those before it, in readings.
const mostTurns = 3

// turn is how many proxies come before this one in reading the engine's pages. 0 = it is this one's to read.
func (e *Engine) turn() int {
	if e.fleet.options().Turn == nil {
		return 0
	}
	return min(max(e.fleet.options().Turn(e.Name), 0), mostTurns)
}

// dueAgain tells whether something that was last known at a time should be read again: every so often where it is this proxy's to read, and
// a reading later for each proxy that comes before it and has been silent.
func (p *prober) dueAgain(now, last time.Time) bool {
	every := factsEvery * p.e.fleet.options().ProbeInterval
	return !now.Before(last.Add(p.jitter(every) + time.Duration(p.e.turn())*every))
}

// Digest is what was last read here, for others; false if nothing was, or if it is older than a minute.
func (e *Engine) Digest() (d Digest, ok bool) {
	now := e.fleet.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	f := &e.facts
	d = Digest{
		Age: now.Sub(f.FactsAt), Running: f.Running, Waiting: f.Waiting, KVUsage: f.KVUsage, KVTokens: f.KVTokens, Start: int64(f.StartTime),
		Work: int64(e.work), Source: uint8(e.workFrom),
	}
	if f.ModelsKnown {
		d.Models = hashModels(f.Models)
	}
	return d, !f.FactsAt.IsZero() && d.Age < staleAfter
}

// Heard takes what another proxy has read. Load figures are taken as they are, since nothing is decided by them alone; a capacity is taken
// where none is known. What tells of a restart, another capacity or other models is a reason to look, and is not believed. An engine that
// is not well here, and news that is not newer than what was read here, are left. Safe for concurrent use; returns at once.
func (e *Engine) Heard(d Digest) {
	now := e.fleet.now()
	at := now.Add(-max(d.Age, 0))
	e.mu.Lock()
	f := &e.facts
	if e.health.base != Ready || f.FactsAt.IsZero() || !at.After(f.FactsAt.Add(superfluous)) || now.Sub(at) >= staleAfter {
		e.mu.Unlock()
		return
	}
	e.counts.FactsHeard++
	r := &reading{start: -1, work: -1, kvTokens: -1, running: max(d.Running, -1), waiting: max(d.Waiting, -1), kvUsage: min(d.KVUsage, 1), workFrom: sources(d.Source)}
	if d.Start > 0 {
		r.start = float64(d.Start)
	}
	if d.Work >= 0 {
		r.work = float64(d.Work)
	}
	if d.KVTokens > 0 {
		r.kvTokens = d.KVTokens
	}
	if e.restarted(r) || r.kvTokens > 0 && f.KVTokens > 0 && r.kvTokens != f.KVTokens {
		e.mu.Unlock()
		e.LookSoon()
		return
	}
	change := e.setFacts(at, r)
	lists := false
	if d.Models != 0 {
		if same := f.ModelsKnown && d.Models == hashModels(f.Models); same {
			e.modelsHeard = at
		} else if d.Models != e.otherModels { // once for each list that differs: two proxies may be told of different ones for good
			e.otherModels, lists = d.Models, true
		}
	}
	e.mu.Unlock()
	if lists {
		e.wantModels.Store(true)
		e.nudge()
	}
	e.fleet.notify(e, change)
}

// hashModels is the same for the same names in the same order, never 0.
func hashModels(models []Model) uint32 {
	h := fnv.New32a()
	for i := range models {
		_, _ = h.Write([]byte(models[i].ID))
		_, _ = h.Write([]byte{0})
	}
	return max(h.Sum32(), 1)
}
