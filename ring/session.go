package ring

// session is what is remembered of a session. 96 bytes; about a million of them are normal.
type session struct {
	key    uint64
	tail   uint64 // fingerprint at which the prompt of its last turn ended
	parent uint64 // the session it was forked from; of a side session the one it belongs to
	seen   int64  // time of its last turn or answer

	engine  ref
	bytes   uint32 // canonical bytes through tail
	context uint32 // tokens that it keeps on its engine, beyond shared
	shared  uint32 // tokens of its prompt that others had brought there before it
	turns   uint32
	scope   uint32 // low bits of its fingerprints' seed: its tenant and model
	head    uint32 // slot of its head in the heads table, while it is active
	cached  uint32 // tokens that were cached last time, when less than expected
	follow  uint32 // low bits of the key of the side session that may be its new history

	older, newer      uint32
	nextKey, nextTail uint32
	told              told // to or by other proxies

	inFlight uint16
	followed uint8 // turns in a row that extended the new history; where there are other proxies: see begunHere
	short    uint8 // answers in a row that had less cached than expected
	active   bool
	tailed   bool // to be found by its tail
	named    bool // its key is the client's
	side     bool // a request under a known id that does not extend that session
}

// head counts the active sessions that share tools and system prompt.
type head struct {
	fingerprint uint64
	users       uint32
	next        uint32
}

// sessions is a bounded table of sessions, in two lists by last use: the active ones, whose context counts against
// their engines' memory, and the idle ones. Two more ways lead to a session: its key, and for sessions without an id of
// their own the fingerprint at which their last prompt ended, which the next one contains.
type sessions struct {
	all          slab[session]
	byKey        table
	byTail       table
	active, idle list
	heads        slab[head]
	byHead       table
	Expired      uint64 // forgotten after being idle
	Shed         uint64 // forgotten because of the bound
}

// list is a doubly linked list of sessions, newest first.
type list struct {
	newest, oldest uint32
	n              int
}

func (t *sessions) init() {
	t.byKey = newTable(
		func(i uint32) uint64 { return mix(t.all.at(i).key) },
		func(i uint32) *uint32 { return &t.all.at(i).nextKey })
	t.byTail = newTable(
		func(i uint32) uint64 { return mix(t.all.at(i).tail) },
		func(i uint32) *uint32 { return &t.all.at(i).nextTail })
	t.byHead = newTable(
		func(i uint32) uint64 { return mix(t.heads.at(i).fingerprint) },
		func(i uint32) *uint32 { return &t.heads.at(i).next })
}

// find returns the session with a key.
func (t *sessions) find(key uint64) uint32 {
	for i := t.byKey.first(mix(key)); i != none; i = t.all.at(i).nextKey {
		if t.all.at(i).key == key {
			return i
		}
	}
	return none
}

// findTail returns the session whose last prompt ended at a fingerprint: of owner's side sessions, or (0) of the others. Of
// several, one whose turn has been answered comes first, as only that one can have a next turn, then the one seen last.
func (t *sessions) findTail(fingerprint uint64, owner uint64) uint32 {
	found := uint32(none)
	for i := t.byTail.first(mix(fingerprint)); i != none; i = t.all.at(i).nextTail {
		s := t.all.at(i)
		if s.tail != fingerprint || s.side != (owner != 0) || s.side && s.parent != owner {
			continue
		}
		if found == none || better(s, t.all.at(found)) {
			found = i
		}
	}
	return found
}

// alike is how many sessions are found by a tail.
func (t *sessions) alike(tail uint64) (n int) {
	for i := t.byTail.first(mix(tail)); i != none; i = t.all.at(i).nextTail {
		if t.all.at(i).tail == tail {
			n++
		}
	}
	return n
}

func better(s, than *session) bool {
	if (s.inFlight == 0) != (than.inFlight == 0) {
		return s.inFlight == 0
	}
	return s.seen > than.seen
}

// maxAlike is how many sessions whose prompts end alike are kept apart. One prompt sent thousands of times at once (a load test)
// would make thousands, all to be looked through each time. Those beyond are not found by their prompts.
const maxAlike = 64

// setTail records where the last prompt of a session ended; tailed sessions are found by it.
func (t *sessions) setTail(i uint32, tail uint64, bytes int, tailed bool) {
	s := t.all.at(i)
	if s.tailed {
		t.byTail.remove(i)
	}
	s.tail, s.bytes, s.tailed = tail, uint32(bytes), tailed && t.alike(tail) < maxAlike
	if s.tailed {
		t.byTail.insert(i)
	}
}

// users is how many active sessions share a head.
func (t *sessions) users(fingerprint uint64) int {
	if h := t.findHead(fingerprint); h != none {
		return int(t.heads.at(h).users)
	}
	return 0
}

func (t *sessions) findHead(fingerprint uint64) uint32 {
	for i := t.byHead.first(mix(fingerprint)); i != none; i = t.heads.at(i).next {
		if t.heads.at(i).fingerprint == fingerprint {
			return i
		}
	}
	return none
}

// setHead makes a session a user of a head; 0 = of none.
func (t *sessions) setHead(i uint32, fingerprint uint64) {
	s := t.all.at(i)
	if s.head != none {
		h := t.heads.at(s.head)
		if h.fingerprint == fingerprint {
			return
		}
		if h.users--; h.users == 0 {
			t.byHead.remove(s.head)
			t.heads.give(s.head)
		}
		s.head = none
	}
	if fingerprint == 0 {
		return
	}
	h := t.findHead(fingerprint)
	if h == none {
		h = t.heads.take()
		t.heads.at(h).fingerprint = fingerprint
		t.byHead.insert(h)
	}
	t.heads.at(h).users++
	s.head = h
}

func (t *sessions) push(l *list, i uint32) {
	s := t.all.at(i)
	s.newer, s.older = none, l.newest
	if l.newest != none {
		t.all.at(l.newest).newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.n++
}

func (t *sessions) unlink(l *list, i uint32) {
	s := t.all.at(i)
	if s.newer != none {
		t.all.at(s.newer).older = s.older
	} else {
		l.newest = s.older
	}
	if s.older != none {
		t.all.at(s.older).newer = s.newer
	} else {
		l.oldest = s.newer
	}
	s.newer, s.older = none, none
	l.n--
}

// listOf is the list that a session is in.
func (t *sessions) listOf(s *session) *list {
	if s.active {
		return &t.active
	}
	return &t.idle
}

// Sizes of what the table holds, for its gauge.
const (
	sessionSize = 96
	headSize    = 16
)

// bytes is the memory that the sessions take.
func (t *sessions) bytes() int64 {
	tables := len(t.byKey.heads) + len(t.byTail.heads) + len(t.byHead.heads)
	return int64(len(t.all.chunks))*chunkSize*sessionSize + int64(len(t.heads.chunks))*chunkSize*headSize +
		int64(tables)*chunkSize*4 + int64(cap(t.all.free)+cap(t.heads.free))*4
}
