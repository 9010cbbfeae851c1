package gossip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warmring/warmring/ring"
)

// View is the state of the cluster as one member sees it.
type View struct {
	Name          string       `json:"name"` // this member
	Cluster       string       `json:"cluster"`
	Address       string       `json:"address"`
	Ready         bool         `json:"ready"`
	Alone         bool         `json:"alone,omitempty"`           // it became ready without anybody's state
	Lonely        bool         `json:"lonely"`                    // it was told of others, and there are none: sessions scatter
	LastJoinError string       `json:"last_join_error,omitempty"` // since it last found somebody
	Encrypted     bool         `json:"encrypted"`
	Health        int          `json:"health"` // of this member's own network, 0 is best
	Members       []MemberView `json:"members"`
	Lost          int          `json:"lost_members"` // went without a word, are looked for

	Entries int        `json:"entries"`
	Digest  string     `json:"digest"` // of all entries: members with the same know the same
	Untold  int        `json:"untold"` // own placements that are not yet among the entries
	Book    BookTotals `json:"book"`
	News    NewsView   `json:"news"`
	Inbox   int        `json:"inbox"` // messages received and not yet read
	Waiting Waiting    `json:"untold_queues"`
	Budget  BudgetView `json:"budget"`
	Quick   BudgetView `json:"quick_budget"`
	Traffic Traffic    `json:"traffic"`
	Asks    AskTotals  `json:"preempt"`

	Readings  DigestTotals `json:"readings"` // of engines' pages
	Reads     int          `json:"reads"`    // engines that are this member's to read for all
	Totals    Totals       `json:"totals"`
	Strangers uint64       `json:"strangers"`       // packets and streams of other clusters, with wrong keys, that are garbage, or were cut
	Crowded   uint64       `json:"crowded_streams"` // streams cut because others needed the place: silent ones, or too many at once

	Away ring.AwayView `json:"placements_of_others"`
}

// MemberView is another member.
type MemberView struct {
	Name     string        `json:"name"`
	Address  string        `json:"address"`
	Program  string        `json:"program,omitempty"`
	Since    float64       `json:"member_for_seconds"`
	Heard    *float64      `json:"heard_seconds_ago"` // its last loads; null = never
	RTT      float64       `json:"round_trip_ms"`
	Messages [2]byte       `json:"message_versions"` // oldest and newest that it reads
	Engines  int           `json:"engines"`
	NotReady []EngineState `json:"engines_not_ready,omitempty"` // as it sees them
	Differs  []string      `json:"differs,omitempty"`           // in words, what this member and that one do not have in common
}

// Waiting is what waits to be told to others, by queue.
type Waiting struct {
	Placements int `json:"placements"` // own, not yet among the entries
	News       int `json:"news"`       // entries to be gossiped
	Digests    int `json:"digests"`    // own readings of engines
	Asks       int `json:"asks"`       // without an answer yet
	Replies    int `json:"replies"`    // to comparisons
}

// Traffic counts bytes on the wire, with the headers of packets.
type Traffic struct {
	PacketsOut uint64 `json:"packets_out"`
	BytesOut   uint64 `json:"bytes_out"`
	PacketsIn  uint64 `json:"packets_in"`
	BytesIn    uint64 `json:"bytes_in"`
	StreamOut  uint64 `json:"stream_bytes_out"` // states of joins, comparisons
	StreamIn   uint64 `json:"stream_bytes_in"`
}

// Totals counts since the start.
type Totals struct {
	Received     uint64 `json:"received"` // messages
	Garbled      uint64 `json:"garbled"`  // of these, those that could not be read
	Versions     uint64 `json:"other_versions"`
	InboxFull    uint64 `json:"inbox_full"` // messages dropped
	QuickSent    uint64 `json:"quick_sent"` // times that news went straight to all members
	QuickSkipped uint64 `json:"quick_skipped"`
	ReplySkipped uint64 `json:"replies_skipped"` // comparisons that were not answered, for the budget's sake
	States       uint64 `json:"states_sent"`
	Compared     uint64 `json:"compared"`
	Joins        uint64 `json:"joins"`
	JoinFails    uint64 `json:"join_failures"`
	LookupFails  uint64 `json:"lookup_failures"` // of names to join
	Imported     uint64 `json:"imported"`        // placements given to the placer
	Drains       uint64 `json:"drains"`
	Hints        uint64 `json:"hints"`
	MembersLost  uint64 `json:"members_lost"`
	MembersLeft  uint64 `json:"members_left"`
	OldLoads     uint64 `json:"old_loads"` // reports that came after newer ones
}

// View returns the state of the cluster.
func (c *Cluster) View() View {
	now := c.now()
	v := View{
		Name: c.name, Cluster: c.opt.Cluster, Address: c.Address(), Ready: c.IsReady(), Alone: c.alone.Load(), Encrypted: c.keyring != nil,
		Health: c.list.GetHealthScore(), Members: []MemberView{}, Entries: c.book.Len(), Book: c.book.Totals(), News: c.news.view(),
		Inbox: len(c.inbox), Budget: c.budget.view(), Quick: c.quick.view(), Asks: c.asks.view(), Readings: c.digests.view(), Away: c.opt.Placer.Away(),
		Strangers: c.traffic.strangers.Load() + c.library.wrong.Load(), Crowded: c.traffic.crowded.Load(),
		Traffic: Traffic{
			c.traffic.packetsOut.Load(), c.traffic.bytesOut.Load(), c.traffic.packetsIn.Load(), c.traffic.bytesIn.Load(),
			c.traffic.streamOut.Load(), c.traffic.streamIn.Load(),
		},
		Totals: Totals{
			Received: c.counts.received.Load(), Garbled: c.counts.garbled.Load(), Versions: c.counts.versions.Load(),
			InboxFull: c.counts.inboxFull.Load(), QuickSent: c.counts.quickSent.Load(), QuickSkipped: c.counts.quickSkipped.Load(), ReplySkipped: c.counts.repliesSkipped.Load(),
			States: c.counts.states.Load(), Compared: c.counts.compared.Load(), Joins: c.counts.joins.Load(),
			JoinFails: c.counts.joinFails.Load(), LookupFails: c.counts.lookupFails.Load(), Imported: c.counts.imported.Load(), Drains: c.counts.drains.Load(),
			Hints: c.counts.hints.Load(), MembersLost: c.counts.lost.Load(), MembersLeft: c.counts.left.Load(), OldLoads: c.loads.late(),
		},
	}
	c.telling.Lock()
	v.Digest, v.Untold = c.book.Digest(), c.opt.Placer.Untold()
	c.telling.Unlock()
	v.Lonely, v.LastJoinError = c.isLonely(), c.lonely.last()
	for _, name := range c.self.Load().engines {
		if c.Owner(name) {
			v.Reads++
		}
	}
	v.Waiting = Waiting{v.Untold, int(v.News.Queued), c.digests.untold(), c.asks.waiting(), len(c.replies)}
	v.Strangers += v.Totals.Garbled + v.Totals.Versions
	for _, m := range c.members.all() {
		v.Members = append(v.Members, c.viewMember(now, m))
	}
	slices.SortFunc(v.Members, func(a, b MemberView) int { return strings.Compare(a.Name, b.Name) })
	c.members.mu.Lock()
	v.Lost = len(c.members.lost)
	c.members.mu.Unlock()
	return v
}

func (c *Cluster) viewMember(now int64, m *member) MemberView {
	v := MemberView{
		Name: m.node.Name, Address: m.address(), Program: m.meta.Program, Since: time.Since(m.joined).Seconds(),
		RTT: float64(m.rtt.Load()) / 1e6, Messages: [2]byte{m.meta.Oldest, m.meta.Newest}, Engines: int(m.meta.Engines),
	}
	if age, ok := c.loads.heard(now, m.id); ok {
		v.Heard = new(age.Seconds())
	}
	own := c.self.Load()
	there := map[uint32]bool{}
	foreign := 0
	m.sights.Range(func(k, s any) bool {
		id, state := k.(uint32), s.(ring.State)
		there[id] = true
		name, ok := own.engines[id]
		if !ok {
			foreign++
			name = fmt.Sprintf("unknown here, %08x", id)
		}
		if state != ring.Ready && state != ring.Busy {
			v.NotReady = append(v.NotReady, EngineState{name, state})
		}
		return true
	})
	slices.SortFunc(v.NotReady, func(a, b EngineState) int { return strings.Compare(a.Engine, b.Engine) })
	if m.strange {
		v.Differs = append(v.Differs, "it is of a version that tells about itself in another way")
		return v
	}
	v.Differs = own.meta.differences(&m.meta)
	if m.meta.EnginesHash != own.meta.EnginesHash && len(there) > 0 {
		var missing []string
		for id, name := range own.engines {
			if !there[id] {
				missing = append(missing, name)
			}
		}
		slices.Sort(missing)
		text := fmt.Sprintf("%d of its engines are not known here", foreign)
		if len(missing) > 0 {
			text += "; it lacks " + strings.Join(missing[:min(len(missing), 20)], ", ")
		}
		v.Differs = append(v.Differs, text)
	}
	return v
}

// Oldest is how long ago the member that was silent the longest was heard of; 0 without members. It grows when the network is cut.
func (c *Cluster) Oldest() time.Duration {
	var oldest time.Duration
	now := c.now()
	for _, m := range c.members.all() {
		age, ok := c.loads.heard(now, m.id)
		if !ok {
			age = time.Since(m.joined)
		}
		oldest = max(oldest, age)
	}
	return oldest
}
