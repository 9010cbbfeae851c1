package gossip

import (
	"sync"
	"time"

	"github.com/warmring/warmring/ring"
)

// An engine's load page is read by one proxy, which tells the others what it found. Its digests go straight to every member with the
// loads; a member that joins gets all there are.

// Digest is what a member has read of an engine: its load in its own words, and what tells its process from another one.
type Digest struct {
	Engine   uint32
	Reader   uint32        // the member that read it
	Age      time.Duration // since then
	Running  int           // -1 = unknown
	Waiting  int           // -1 = unknown
	Usage    int           // of its KV memory in 1/1000; -1 = unknown
	KVTokens int64         // 0 = unknown
	Start    int64         // of its process, Unix seconds; 0 = unknown
	Work     int64         // a counter that only a restart sets back; -1 = unknown
	Source   uint8         // where Work was read
	Models   uint32        // hash of the models it lists; 0 = unknown
}

const (
	digestLife  = time.Minute // an older one is unknown
	digestTimes = 2           // each is told twice: a packet may be lost, and the next reading is seconds away
)

// digests are the newest of each engine. Safe for concurrent use; bounded by the engines.
type digests struct {
	mu       sync.Mutex
	newest   map[uint32]*keptDigest
	read     uint64 // by this member
	heard    uint64 // from others, those that were news
	outdated uint64 // from others, not newer than what was known
}

type keptDigest struct {
	Digest
	at   int64
	left int // times that it is still to be told
}

func newDigests() *digests { return &digests{newest: make(map[uint32]*keptDigest)} }

// own notes what this member has read.
func (d *digests) own(now int64, digest Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read++
	d.newest[digest.Engine] = &keptDigest{Digest: digest, at: now - int64(digest.Age), left: digestTimes}
}

// take notes what another has read and tells whether it is news.
func (d *digests) take(now int64, digest Digest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := now - int64(digest.Age)
	if old := d.newest[digest.Engine]; digest.Age >= digestLife || old != nil && at <= old.at {
		d.outdated++
		return false
	}
	d.heard++
	d.newest[digest.Engine] = &keptDigest{Digest: digest, at: at}
	return true
}

// due are the own ones that are to be told now, at most so many; each counts as told once more.
func (d *digests) due(now int64, most int) (list []Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.newest {
		if len(list) >= most {
			break
		}
		if k.left > 0 {
			k.left--
			list = append(list, k.aged(now))
		}
	}
	return list
}

// recent are what a member has read itself within a time, at most so many, for each of many members in turn: they count as told.
func (d *digests) recent(now int64, member uint32, within time.Duration, most int) (list []Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.newest {
		aged := k.aged(now)
		switch {
		case k.Reader != member:
		case aged.Age > within:
			k.left = 0
		case len(list) < most:
			list = append(list, aged)
		}
	}
	return list
}

// all are those that say something still, for a member that joins.
func (d *digests) all(now int64) (list []Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.newest {
		if aged := k.aged(now); aged.Age < digestLife {
			list = append(list, aged)
		}
	}
	return list
}

func (k *keptDigest) aged(now int64) Digest {
	d := k.Digest
	d.Age = time.Duration(max(now-k.at, 0))
	return d
}

func (d *digests) untold() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.newest {
		if k.left > 0 {
			n++
		}
	}
	return n
}

// DigestTotals counts readings of engines' pages.
type DigestTotals struct {
	Read     uint64 `json:"read"`     // by this member
	Heard    uint64 `json:"heard"`    // by others, and new here
	Outdated uint64 `json:"outdated"` // by others, and not newer than what was known
}

func (d *digests) view() DigestTotals {
	d.mu.Lock()
	defer d.mu.Unlock()
	return DigestTotals{Read: d.read, Heard: d.heard, Outdated: d.outdated}
}

// Read tells the others what this member has just read of an engine. It does not wait.
func (c *Cluster) Read(engine string, d Digest) {
	d.Engine, d.Reader = ring.EngineID(engine), c.node
	if _, ok := c.engineName(d.Engine); ok {
		c.digests.own(c.now(), d)
	}
}

// hearDigests takes what others have read.
func (c *Cluster) hearDigests(now int64, list []Digest) {
	for i := range list {
		d := &list[i]
		name, ok := c.engineName(d.Engine)
		if !ok || d.Reader == c.node || !c.digests.take(now, *d) || c.opt.OnDigest == nil {
			continue
		}
		c.opt.OnDigest(name, *d)
	}
}

// ReadBy is the member that has last read an engine's pages, as far as it is known and still there; "" is unknown.
func (c *Cluster) ReadBy(engine string) string {
	c.digests.mu.Lock()
	k := c.digests.newest[ring.EngineID(engine)]
	c.digests.mu.Unlock()
	switch {
	case k == nil:
		return ""
	case k.Reader == c.node:
		return c.name
	}
	if m := c.members.find(k.Reader); m != nil {
		return m.node.Name
	}
	return ""
}

// sendDigests sends what did not fit beside the loads, as far as the budget goes; the rest waits.
func (c *Cluster) sendDigests(now int64, all []*member) {
	for c.digests.untold() > 0 {
		if c.budget.available(now) < len(all)*(maxPacket+packetCost) {
			return
		}
		c.tell(now, all, &Message{Sender: c.node, Sequence: c.sequence.Add(1), Digests: c.digests.due(now, maxPacket/digestSize)})
	}
}
