package proxy

import "sync"

// leaving are the engines that a reload has taken out and that still have requests to end: no new ones come. An operator who
// waits to switch such an engine off sees them at /api/engines, and reads in the log when the last has ended.
type leaving struct {
	mu   sync.Mutex
	list []*upstream // each with an open connection when last looked at
}

func (l *leaving) add(up *upstream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, up)
}

// gone takes those out that have nothing left to end, and calls told for each.
func (l *leaving) gone(told func(*upstream)) {
	var done []*upstream
	l.mu.Lock()
	kept := l.list[:0]
	for _, up := range l.list {
		if up.pool.Open() > 0 {
			kept = append(kept, up)
		} else {
			done = append(done, up)
		}
	}
	clear(l.list[len(kept):])
	l.list = kept
	l.mu.Unlock()
	for _, up := range done {
		told(up)
	}
}

func (l *leaving) all() []*upstream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*upstream(nil), l.list...)
}
