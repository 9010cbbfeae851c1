package proxy

import (
	"errors"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/gossip"
)

// OpenCluster joins the other proxies, if the configuration has a [cluster], and does not wait for them. Serve does it; who wants to know
// before that whether the ports, addresses and interfaces of [cluster] are there calls it, once, and then Serve.
func (s *Server) OpenCluster() error {
	k := &s.cfg.Cluster
	if k.Bind == "" || s.cluster.Load() != nil {
		return nil
	}
	if len(k.Keys) == 0 {
		s.secretPrint = printSecret(s.tenantSecret)
	}
	c, err := gossip.Start(gossip.Options{
		Cluster: k.Name, Node: k.Node, Bind: k.Bind, Advertise: k.Advertise, Interface: k.Interface, Join: k.Join, Keys: k.AESKeys(),
		Rejoin: k.Rejoin.Std(), Sync: k.Sync.Std(), Probe: k.Probe.Std(), ReadyLimit: max(k.ReadyLimit.Std(), 1), Budget: int(k.Budget),
		Version: s.version, Engines: s.engineNames(), Traits: s.traits(), Placer: s.placer, Now: s.now, Log: s.log,
		EngineStates: s.engineStates, OnDrain: s.drainedElsewhere, OnHint: s.seenElsewhere, OnDigest: s.readElsewhere, OnPreempt: s.preemptForOthers,
	})
	if err != nil {
		if at := new(gossip.OptionError); errors.As(err, &at) {
			return s.cfg.At("cluster."+at.Option, err)
		}
		return s.cfg.At("cluster", err)
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
