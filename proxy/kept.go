package proxy

import (
	"sync"
	"time"
)

// keptShare learns which share of the computed prefix an engine still has when a
// preempted request comes back. A low share ends preemption, and without
// preemption there are no samples: so few of them say nothing, and old ones are
// forgotten, so that a bad moment is not the last word.
type keptShare struct {
	mu      sync.Mutex
	mean    float64
	samples int
	last    time.Time
}

const (
	fewKept = 3
	oldKept = 10 * time.Minute
)

// learn takes one answer of a preempted request.
func (k *keptShare) learn(found, computed int, now time.Time) {
	if computed < 1024 {
		return // block sizes and estimates would outweigh it
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.samples++
	k.last = now
	share := min(max(float64(found)/float64(computed), 0.01), 1)
	k.mean += (share - k.mean) * max(1/float64(k.samples), 0.2)
}

// share is the mean, 0 while unknown.
func (k *keptShare) share(now time.Time) float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.samples > 0 && now.Sub(k.last) > oldKept {
		k.samples, k.mean = 0, 0
	}
	if k.samples < fewKept {
		return 0
	}
	return k.mean
}

// forget drops what was learned: the engine is another process now.
func (k *keptShare) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.samples, k.mean = 0, 0
}
