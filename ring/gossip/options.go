package gossip

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/warmring/warmring/ring"
)

// Options describe one member. The zero values of what is marked so take defaults.
type Options struct {
	// Cluster is the name that members have in common: packets of clusters with other names are refused. Default "warmring".
	Cluster string
	// Node begins this member's name; a suffix that is new at each start makes it unique, as a name that comes back with another
	// address is refused for a while. Default: the host name.
	Node string
	// Bind is the "host:port" to open for UDP and TCP. Port 0 takes a free one.
	Bind string
	// Advertise is the "host" or "host:port" that others reach this member at. Default: the bound address, or where that is all
	// addresses, the one of Interface or a private one.
	Advertise string
	// Interface names the network interface whose address is told to others. Default: any. Where Bind is one address it must be one of
	// the interface's.
	Interface string
	// Join are "host:port" of other members; names may have many addresses and are looked up again and again. Own addresses among
	// them are left out, so all members can have the same list.
	Join []string
	// Keys are AES keys of 16, 24 or 32 bytes: the first encrypts, all decrypt. None: nothing is encrypted, and whoever reaches the
	// port can place sessions.
	Keys [][]byte

	// Rejoin is how often names are looked up to find members that are missing. Default 30 s.
	Rejoin time.Duration
	// Sync is how often a member compares what it knows with another one. Default 10 s.
	Sync time.Duration
	// Probe is how often a member is probed; one that fails is gone after about five times that. Default 500 ms.
	Probe time.Duration
	// ReadyLimit is how long a joiner waits for the state of another member before it works without. Default 10 s.
	ReadyLimit time.Duration
	// Budget bounds what is sent, in bytes per second. Default 30 KB.
	Budget int
	// MaxEntries bounds what is remembered. Default 100,000, at about 100 bytes each.
	MaxEntries int

	// Version is this program's, shown to others.
	Version string
	// Engines are the names of the configured engines.
	Engines []string
	// Traits are hashes of what members should have in common; what differs is shown.
	Traits

	// Placer is told what others placed and asked for what was placed here. Required; Start calls its Share.
	Placer *ring.Placer
	// Now is the clock of the Placer. Required.
	Now func() int64
	// Wall is the wall clock. nil = time.Now.
	Wall func() time.Time
	// Log gets changes of membership and what goes wrong. nil discards.
	Log *slog.Logger

	// EngineStates lists how this member sees its engines, for others to show. nil = not told.
	EngineStates func() []EngineState
	// OnDrain is called when an operator drained an engine through another member, or put it back. It must not block. nil = nobody.
	OnDrain func(engine string, drained bool)
	// OnHint is called when another member saw an engine go down, come back (Ready) or restart (Unknown): a reason to look at it
	// now, not to believe it. It must not block. nil = nobody.
	OnHint func(engine string, state ring.State)
	// OnDigest is called when another member has read an engine's pages. It must not block. nil = nobody.
	OnDigest func(engine string, d Digest)
	// OnPreempt lets a turn of another member by, by taking prefills back or holding them; turn is the same when it asks again, and no
	// other member's. over says that it waits no more. It must not block. nil = all are refused.
	OnPreempt func(engine string, turn uint64, over bool) Answer

	// Transport wraps the network, for tests with faults. nil = as it is.
	Transport func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// EngineState is how a member sees an engine.
type EngineState struct {
	Engine string     `json:"engine"`
	State  ring.State `json:"state"`
}

func (o Options) withDefaults() (Options, error) {
	if o.Placer == nil || o.Now == nil {
		return o, fmt.Errorf("gossip: Placer and Now are required")
	}
	text := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
	}
	text(&o.Cluster, "warmring")
	if o.Node == "" {
		o.Node, _ = os.Hostname()
	}
	o.Node = notInNames.ReplaceAllString(o.Node, "-")
	text(&o.Node, "proxy")
	o.Node = o.Node[:min(len(o.Node), 64)]
	if len(o.Cluster) > memberlist.LabelMaxSize {
		return o, fmt.Errorf("cluster name %.40q… has %d bytes, more than %d", o.Cluster, len(o.Cluster), memberlist.LabelMaxSize)
	}
	length := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	length(&o.Rejoin, 30*time.Second)
	length(&o.Sync, 10*time.Second)
	length(&o.Probe, 500*time.Millisecond)
	length(&o.ReadyLimit, 10*time.Second)
	if o.Budget <= 0 {
		o.Budget = 30_000
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 100_000
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
