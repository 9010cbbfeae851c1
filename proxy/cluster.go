package proxy

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/gossip"
)

// startCluster joins the other proxies, if the configuration has a [cluster]. It does not wait for them.
func (s *Server) startCluster() error {
	k := &s.cfg.Cluster
	if k.Bind == "" {
		return nil
	}
	var names []string
	for _, e := range s.fleet.Engines() {
		names = append(names, e.Name)
	}
	c, err := gossip.Start(gossip.Options{
		Cluster: k.Name, Node: k.Node, Bind: k.Bind, Advertise: k.Advertise, Interface: k.Interface, Join: k.Join, Keys: k.AESKeys(),
		Rejoin: k.Rejoin.Std(), Sync: k.Sync.Std(), Probe: k.Probe.Std(), ReadyLimit: max(k.ReadyLimit.Std(), 1), Budget: int(k.Budget),
		Version: s.version, Engines: names, Settings: s.settingsHash(), Placer: s.placer, Now: s.now, Log: s.log,
		EngineStates: s.engineStates, OnDrain: s.drainedElsewhere, OnHint: s.seenElsewhere, OnPreempt: s.preemptForOthers,
	})
	if err != nil {
		return s.cfg.At("cluster.bind", err)
	}
	s.cluster.Store(c)
	return nil
}

// leaveCluster says good-bye to the others. It comes after the last request, so that nothing is charged any more.
func (s *Server) leaveCluster() {
	if c := s.cluster.Load(); c != nil {
		if err := c.Close(); err != nil {
			s.log.Warn("leaving the cluster", "error", err)
		}
	}
}

// settingsHash is the same for proxies that agree on every key and home. The secret takes part only where the wire is
// encrypted: who listens could try secrets against it.
func (s *Server) settingsHash() uint32 {
	h := fnv.New32a()
	fmt.Fprintln(h, s.cfg.Routing.VirtualNodes, identitySources(s.cfg))
	if len(s.cfg.Cluster.Keys) > 0 {
		fmt.Fprintln(h, s.tenantSecret)
	}
	var weights []string
	for _, e := range s.fleet.Engines() {
		weights = append(weights, fmt.Sprint(e.Name, " ", e.Weight))
	}
	slices.Sort(weights)
	fmt.Fprintln(h, weights)
	return h.Sum32()
}

func (s *Server) engineStates() []gossip.EngineState {
	var list []gossip.EngineState
	for _, e := range s.fleet.Engines() {
		list = append(list, gossip.EngineState{Engine: e.Name, State: placerState(e.State())})
	}
	return list
}

// drainedElsewhere follows an operator's word to another proxy.
func (s *Server) drainedElsewhere(engine string, drained bool) {
	steer := s.fleet.Undrain
	if drained {
		steer = s.fleet.Drain
	}
	if err := steer(engine); err == nil {
		s.log.Info("engine steered by an operator through another proxy", "engine", engine, "drained", drained)
	}
}

// seenElsewhere looks at an engine that another proxy saw go down or restart. It is used on until this proxy has seen it too.
func (s *Server) seenElsewhere(engine string, state ring.State) {
	if e := s.fleet.ByName(engine); e != nil && (state != ring.Down || e.State() != engines.Down) {
		e.LookSoon()
	}
}

// tellOthers passes on what was found out about an engine.
func (s *Server) tellOthers(e *engines.Engine, what engines.Change) {
	c := s.cluster.Load()
	switch {
	case c == nil:
	case what&engines.Restarted != 0:
		c.Saw(e.Name, ring.Unknown)
	case what&engines.StateChanged != 0 && e.State() == engines.Down:
		c.Saw(e.Name, ring.Down)
	}
}

// joining tells whether this proxy still waits for what the others know.
func (s *Server) joining() bool {
	c := s.cluster.Load()
	return c != nil && !c.IsReady() || c == nil && s.cfg.Cluster.Bind != ""
}

// clusterView is what /api/cluster shows.
func (s *Server) clusterView() any {
	c := s.cluster.Load()
	if c == nil {
		return map[string]any{"enabled": false, "members": []string{}, "note": "this proxy works alone: there is no [cluster]"}
	}
	return struct {
		Enabled bool `json:"enabled"`
		gossip.View
	}{true, c.View()}
}

// writeCluster gives the cluster's metrics.
func writeCluster(w io.Writer, c *gossip.Cluster) {
	if c == nil {
		return
	}
	v := c.View()
	ready, differing := 0, 0
	if v.Ready {
		ready = 1
	}
	for _, m := range v.Members {
		if len(m.Differs) > 0 {
			differing++
		}
	}
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"members", float64(len(v.Members) + 1)}, // this one included
		{"lost_members", float64(v.Lost)},
		{"differing_members", float64(differing)},
		{"ready", float64(ready)},
		{"health_score", float64(v.Health)},
		{"oldest_peer_seconds", c.Oldest().Seconds()},
		{"entries", float64(v.Entries)},
		{"news_queued", float64(v.News.Queued)},
		{"inbox_queued", float64(v.Inbox)},
		{"away_sessions", float64(v.Away.Sessions)},
		{"packet_bytes_sent_total", float64(v.Traffic.BytesOut)},
		{"packet_bytes_received_total", float64(v.Traffic.BytesIn)},
		{"packets_sent_total", float64(v.Traffic.PacketsOut)},
		{"packets_received_total", float64(v.Traffic.PacketsIn)},
		{"stream_bytes_sent_total", float64(v.Traffic.StreamOut)},
		{"stream_bytes_received_total", float64(v.Traffic.StreamIn)},
		{"budget_bytes_left", float64(v.Budget.Left)},
		{"written_total", float64(v.Book.Written)},
		{"merged_total", float64(v.Book.Merged)},
		{"known_total", float64(v.Book.Known)},
		{"expired_total", float64(v.Book.Expired)},
		{"news_sent_total", float64(v.News.Sent)},
		{"quick_sent_total", float64(v.Totals.QuickSent)},
		{"received_total", float64(v.Totals.Received)},
		{"strangers_total", float64(v.Strangers)},
		{"joins_total", float64(v.Totals.Joins)},
		{"join_failures_total", float64(v.Totals.JoinFails)},
		{"members_lost_total", float64(v.Totals.MembersLost)},
		{"members_left_total", float64(v.Totals.MembersLeft)},
		{"compared_total", float64(v.Totals.Compared)},
		{"imported_total", float64(v.Totals.Imported)},
		{"rebound_total", float64(v.Away.Totals.Rebound)},
		{"met_total", float64(v.Away.Totals.Met)},
		{"unknown_engine_total", float64(v.Away.Totals.Unknown)},
		{"preempt_asked_total", float64(v.Asks.Asked)},
		{"preempt_freed_total", float64(v.Asks.Freed)},
		{"preempt_unanswered_total", float64(v.Asks.Unanswered)},
		{"preempt_got_total", float64(v.Asks.Got)},
	} {
		fmt.Fprintf(w, "warmring_cluster_%s %v\n", m.name, m.value)
	}
	for _, shed := range []struct {
		what  string
		value uint64
	}{
		{"book", v.Book.Shed}, {"news", v.News.Shed}, {"news_late", v.News.Cut}, {"quick", v.Totals.QuickSkipped}, {"reply", v.Totals.ReplySkipped}, {"inbox", v.Totals.InboxFull},
		{"placer", v.Away.Totals.Dropped}, {"away", v.Away.Totals.Shed}, {"preempt", v.Asks.Shed},
	} {
		fmt.Fprintf(w, "warmring_cluster_shed_total{what=%q} %d\n", shed.what, shed.value)
	}
}

// A session's next turn may reach another proxy before the news of where it was placed does. One whose session is unknown there
// waits a moment: it is little beside the prefill of a whole history, which a wrong place would cost.
const (
	newsWait = 120 * time.Millisecond // news that was lost on the straight way comes by gossip within two rounds
	newsLook = 2 * time.Millisecond
)

// awaitNews lets the news of this turn's session arrive, if there are other proxies that may have sent some. Known sessions and
// first turns pass at once.
func (r *request) awaitNews() {
	s, t := r.s, &r.scratch.turn
	c := s.cluster.Load()
	if c == nil || !c.HasMembers() || !s.placer.Missing(t) {
		return
	}
	s.metrics.newsAwaited.Inc()
	timer := time.NewTimer(newsLook)
	defer timer.Stop()
	for began := time.Now(); time.Since(began) < newsWait; {
		select {
		case <-timer.C:
		case <-s.stopping:
			return
		}
		if !s.placer.Missing(t) {
			s.metrics.newsArrived.Inc()
			return
		}
		timer.Reset(newsLook)
	}
}
