package gossip

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// member is another proxy.
type member struct {
	node    memberlist.Node // a copy: the library's own changes under its lock
	id      uint32
	meta    meta
	strange bool // its meta cannot be read: another version
	joined  time.Time
	rtt     atomic.Int64
	sights  sync.Map // engine id → ring.State, as last told
	sighted atomic.Int64
	leaving bool // it has said goodbye; under members.mu
}

func (m *member) address() string {
	return net.JoinHostPort(m.node.Addr.String(), strconv.Itoa(int(m.node.Port)))
}

// members are the live ones but this one, and the addresses of those that were lost.
type members struct {
	mu     sync.Mutex
	byName map[string]*member
	byID   map[uint32]*member
	lost   map[string]*lostMember // by address

	list atomic.Pointer[[]*member] // of byName, never changed

	reported struct { // the loads last told to all of them
		sync.Mutex
		at      int64
		content string
		next    int     // of all, where not all are told at once
		due     float64 // how many of them are to be told now
	}
}

// lostMember went without a word. It may be cut off and unable to come back by itself: both sides believe the other to be dead.
type lostMember struct {
	name        string
	id          uint32
	told        bool // in log and count
	since, next time.Time
}

const maxLost = 256

func (m *members) init() {
	m.byName, m.byID, m.lost = make(map[string]*member), make(map[uint32]*member), make(map[string]*lostMember)
	m.list.Store(new([]*member))
}

// all are the live members; the slice must not be changed.
func (m *members) all() []*member { return *m.list.Load() }

func (m *members) count() int { return len(m.all()) }

func (m *members) add(n *memberlist.Node) *member {
	mem := &member{node: *n, id: nodeID(n.Name), joined: time.Now()}
	mem.node.Meta = nil
	var err error
	if mem.meta, err = readMeta(n.Meta); err != nil {
		mem.strange = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.byName[n.Name]; old != nil {
		mem.joined, mem.leaving = old.joined, old.leaving
		mem.rtt.Store(old.rtt.Load())
		if old.meta.EnginesHash == mem.meta.EnginesHash { // else it would be believed to have engines that it has no more; its next state tells
			old.sights.Range(func(engine, state any) bool {
				mem.sights.Store(engine, state)
				return true
			})
		}
	}
	m.byName[n.Name], m.byID[mem.id] = mem, mem
	delete(m.lost, mem.address())
	m.publish()
	return mem
}

// remove drops a member. One that has not said goodbye counts as lost, and is looked for.
func (m *members) remove(n *memberlist.Node, now time.Time) (id uint32, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mem := m.byName[n.Name]
	if mem == nil {
		return 0, false
	}
	delete(m.byName, n.Name)
	delete(m.byID, mem.id)
	if !mem.leaving {
		if len(m.lost) >= maxLost {
			for a := range m.lost {
				delete(m.lost, a)
				break
			}
		}
		m.lost[mem.address()] = &lostMember{name: n.Name, id: mem.id, since: now, next: now.Add(time.Second)}
	}
	m.publish()
	return mem.id, mem.leaving
}

func (m *members) publish() {
	list := make([]*member, 0, len(m.byName))
	for _, mem := range m.byName {
		list = append(list, mem)
	}
	m.list.Store(&list)
}

func (m *members) find(id uint32) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byID[id]
}

func (m *members) named(name string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byName[name]
}

func (m *members) has(address string) bool {
	for _, mem := range m.all() {
		if mem.address() == address {
			return true
		}
	}
	return false
}

// toTry picks a lost member that is due to be looked for, and puts it back: each second at first, later more seldom, for an hour.
func (m *members) toTry(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for address, l := range m.lost {
		if now.Before(l.next) {
			continue
		}
		gone := now.Sub(l.since)
		if gone > time.Hour {
			delete(m.lost, address)
			continue
		}
		pause := time.Second
		switch {
		case gone > 10*time.Minute:
			pause = 30 * time.Second
		case gone > time.Minute:
			pause = 5 * time.Second
		}
		l.next = now.Add(pause)
		return address
	}
	return ""
}

// see notes how a member sees engines: all of them, or the exceptions, which are those that are not ready; all others it knows are.
func (mem *member) see(now int64, list []Sight, exceptions bool) {
	mem.sighted.Store(now)
	if exceptions {
		mem.sights.Range(func(k, _ any) bool {
			mem.sights.Store(k, ring.Ready)
			return true
		})
	}
	listed := make(map[uint32]bool, len(list))
	for _, s := range list {
		mem.sights.Store(s.Engine, s.State)
		listed[s.Engine] = true
	}
	if !exceptions { // what it has no more goes
		mem.sights.Range(func(engine, _ any) bool {
			if !listed[engine.(uint32)] {
				mem.sights.Delete(engine)
			}
			return true
		})
	}
}
