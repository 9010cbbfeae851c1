package gossip

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// Cluster is this proxy's membership among the proxies. Start makes one, Close leaves.
//
//	Start ──▶ joining ──▶ ready ──▶ Close
//	             │ nobody there, or ReadyLimit passed
//	             └──────▶ ready, alone; goes on looking for others
type Cluster struct {
	opt  Options
	name string
	node uint32
	self atomic.Pointer[self]

	list    *memberlist.Memberlist
	keyring *memberlist.Keyring
	library *libraryLog
	traffic traffic

	book    *Book
	news    *news
	loads   *loads
	digests *digests
	asks    *asks
	budget  *budget // all that we send
	quick   *budget // the part of it that goes straight to every member

	members    members
	lookup     func(context.Context, string) ([]string, error) // the addresses of a name to join
	unresolved int                                             // names that could not be looked up last; of join's goroutine
	selves     map[string]bool                                 // addresses that turned out to be our own; of join's goroutine
	sequence   atomic.Uint64
	inbox      chan []byte
	replies    chan reply
	wake       chan struct{}
	askWake    chan struct{}
	ready      chan struct{}
	isReady    atomic.Bool
	settled    atomic.Bool // the state of one that is ready has been taken in

	// compareUntil is for how long this member compares what it knows at short intervals: after somebody has come. What comes over
	// a healed cut is known to half of the members already, who do not pass it on, so gossip alone leaves gaps.
	compareUntil atomic.Int64

	active atomic.Int64 // when it was last heard that another member has work, or has placed something

	// telling is held while entries go from the Placer to the Book or back, so that View shows no news as told that is in neither.
	telling sync.Mutex

	// numbering is held while charges are read and given their message's number, so that a greater number never tells of an earlier moment.
	numbering sync.Mutex
	owed      []ring.Load // what the straight way had no room for, as it was then

	// summing is held while what others charged is summed up and given to the Placer, so that no older sum replaces a newer one.
	summing sync.Mutex

	alone  atomic.Bool // ready without anybody's state
	lonely lonely
	counts counts

	base   context.Context
	stop   context.CancelFunc
	closed atomic.Bool
	work   sync.WaitGroup
}

// reply is a comparison: whom to send what its hashes do not show, or without hashes, whom to send ours.
type reply struct {
	to     uint32
	hashes []uint32
}

// counts are events, see Totals.
type counts struct {
	received, garbled, versions, inboxFull atomic.Uint64
	quickSent, quickSkipped                atomic.Uint64
	repliesSkipped                         atomic.Uint64
	states, compared, joins, joinFails     atomic.Uint64
	lookupFails                            atomic.Uint64
	imported, drains, hints                atomic.Uint64
	lost, left                             atomic.Uint64
}

// Start opens the ports and joins in the background; Ready tells when that is done. The caller must Close.
func Start(opt Options) (*Cluster, error) {
	c, err := create(opt)
	if err != nil {
		return nil, err
	}
	c.begin()
	return c, nil
}

// begin starts what a member does by itself.
func (c *Cluster) begin() {
	for _, run := range []func(){c.receive, c.flush, c.tend, c.join, c.askLoop, c.replyLoop} {
		c.work.Go(run)
	}
}

// create makes a member with open ports that does nothing by itself.
func create(opt Options) (*Cluster, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opt: opt, name: opt.Node + "-" + bootSuffix()}
	c.node = nodeID(c.name)
	c.self.Store(newSelf(&opt))
	c.book = NewBook(c.node, opt.MaxEntries)
	c.news = newNews(maxNews)
	c.loads = newLoads()
	c.digests = newDigests()
	c.asks = newAsks()
	c.budget = newBudget(float64(opt.Budget)*ownShare, time.Second/2)
	c.quick = newBudget(float64(opt.Budget)*quickShare, quickSaved)
	c.library = newLibraryLog(opt.Log)
	c.inbox = make(chan []byte, maxInbox)
	c.replies = make(chan reply, 4)
	c.wake = make(chan struct{}, 1)
	c.askWake = make(chan struct{}, 1)
	c.ready = make(chan struct{})
	c.members.init()
	c.selves = make(map[string]bool)
	c.lookup = lookUp
	c.base, c.stop = context.WithCancel(context.Background())

	opt.Placer.Share(uint64(c.node), c.wakeUp) // before anybody can tell it something
	if err := c.open(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

const (
	maxInbox = 1024 // messages received and not yet read
	maxNews  = 512  // entries that wait to be spread: some seconds of what the default budget lets out

	// Of the budget some is left to memberlist's own probes and to what cannot be planned, and the direct way gets no more than
	// a third, as news that does not go that way still goes by gossip.
	ownShare   = 0.85
	quickShare = 0.30
)

func bootSuffix() string {
	var b [5]byte
	_, _ = rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// Name is this member's name.
func (c *Cluster) Name() string { return c.name }

// Address is the "host:port" that others reach this member at.
func (c *Cluster) Address() string { return c.list.LocalNode().Address() }

// Ready is closed when the state of another member that was ready itself has been taken in, or there is none to be had.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// IsReady tells whether Ready is closed.
func (c *Cluster) IsReady() bool { return c.isReady.Load() }

// HasMembers tells whether there are others now.
func (c *Cluster) HasMembers() bool { return c.members.count() > 0 }

// IsQuiet tells that nothing has been heard for a while of work or placements of other members, so that there is hardly any news under way:
// who has work says so twice a second, in clusters of some tens at least. Alone is quiet.
func (c *Cluster) IsQuiet() bool { return c.now()-c.active.Load() > int64(quiet) }

// quiet is longer than two reports and the way by gossip.
const quiet = 2*heartbeat + 200*time.Millisecond

func (c *Cluster) becomeReady(alone bool) {
	if !c.isReady.Swap(true) {
		c.alone.Store(alone)
		close(c.ready)
		c.warnLonely(0)
		c.opt.Log.Info("cluster ready", "member", c.name, "address", c.Address(), "members", c.members.count()+1, "entries", c.book.Len(), "alone", alone)
	}
}

func (c *Cluster) now() int64 { return c.opt.Now() }

func (c *Cluster) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write makes an own entry and queues it.
func (c *Cluster) write(now int64, e Entry) Entry {
	e = c.book.Write(now, uint32(c.opt.Wall().Unix()), e)
	c.news.add(&e, false, 0)
	return e
}
