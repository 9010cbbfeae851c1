package proxy

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/warmring/warmring/config"
)

// reloads is what is known of the configurations that this proxy was given.
type reloads struct {
	started chan struct{} // closed when all that a reload changes has begun
	mu      sync.Mutex    // one at a time, and none while Serve ends
	state   atomic.Pointer[reloadState]
	applied *metrics.Counter
	refused *metrics.Counter // valid, but cannot be put in force while running
	invalid *metrics.Counter // cannot be read
}

// reloadState is what came of the last reload. It does not change.
type reloadState struct {
	number int       // of the configuration in force; 1 = the one at the start
	at     time.Time // when it came into force
	failed error     // why the last one did not; nil if it did
}

// errStopping is what a reload gets while the proxy ends.
var errStopping = errors.New("reload the configuration: warmring is shutting down")

// Reload puts the configuration that load reads in force, or leaves the old one in force as a whole: if load fails, if
// something changed that needs a restart, or if an engine cannot be made as described. Requests under way keep the settings
// they came under. Requests that lanes hold go by the new rules at once. An engine that stays keeps its warmth, its
// connections and its requests; one that is gone gets no new work, its held requests move, its streams end in their time.
// What came of it is logged, counted and shown at /api/config; the error is the same. Safe for concurrent use; it waits
// until Serve has begun.
func (s *Server) Reload(load func() (*config.Config, error)) error {
	l := &s.reloads
	<-l.started
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.draining.Load() {
		return errStopping
	}
	cfg, err := load()
	if err != nil {
		return s.notReloaded(l.invalid, err)
	}
	changes, err := s.apply(cfg)
	if err != nil {
		return s.notReloaded(l.refused, err)
	}
	number := l.state.Load().number + 1
	l.state.Store(&reloadState{number: number, at: time.Now()})
	l.applied.Inc()
	s.log.Info("configuration applied", "file", cfg.File(), "sha256", cfg.Digest(), "number", number, "engines", len(cfg.Engines), "changes", told(changes))
	for _, w := range cfg.Warnings() {
		s.log.Warn(w)
	}
	return nil
}

// notReloaded counts, remembers and logs why a configuration is not in force, one line for each fault of the file.
func (s *Server) notReloaded(count *metrics.Counter, err error) error {
	count.Inc()
	last := s.reloads.state.Load()
	s.reloads.state.Store(&reloadState{last.number, last.at, err})
	const message = "configuration not applied: the old one stays in force"
	var faults *config.Error
	if !errors.As(err, &faults) {
		s.log.Error(message, "error", err)
		return err
	}
	for i := range faults.Problems {
		p := &faults.Problems[i]
		s.log.Error(message, "file", faults.File, "line", p.Line(), "key", p.Key, "error", p.Message, "hint", p.Hint)
	}
	return err
}

// toldChanges bounds the log line of a reload.
const toldChanges = 40

func told(changes []string) string {
	if len(changes) == 0 {
		return "none"
	}
	if more := len(changes) - toldChanges; more > 0 {
		changes = append(changes[:toldChanges:toldChanges], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(changes, "; ")
}

// apply puts cfg in force. Everything that can fail comes first.
func (s *Server) apply(cfg *config.Config) (changes []string, err error) {
	was := s.settings.Load()
	if changes, err = cfg.ChangesFrom(was.Config); err != nil {
		return nil, err
	}
	set, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	plan, err := s.fleet.Plan(cfg.Specs(), cfg.FleetOptions())
	if err != nil {
		return nil, err
	}
	if c := s.cluster.Load(); c != nil && len(cfg.Cluster.Keys) > 0 {
		if err := c.SetKeys(cfg.Cluster.AESKeys()); err != nil {
			return nil, cfg.At("cluster.keys", err)
		}
	}

	// Engines come before the placer can choose them, and go after it cannot any more.
	old := s.upstreams()
	next, union := make(map[string]*upstream, len(cfg.Engines)), maps.Clone(old)
	for i, e := range plan.Engines() {
		up, c := old[e.Name], &cfg.Engines[i]
		switch {
		case up == nil || !up.SameAs(e):
			if up != nil {
				s.metrics.removeEngine(e.Name)
			}
			up = s.newUpstream(e, c, nil, set)
			s.metrics.addEngine(up)
		case up.Engine != e || up.preempt != c.Preempt:
			up = s.newUpstream(e, c, up.contact, set)
		}
		next[e.Name], union[e.Name] = up, up
	}
	s.settings.Store(set)
	s.contacts.Store(&union)
	plan.Apply()
	s.updatePlacer()
	s.contacts.Store(&next)

	for _, up := range next {
		up.pool.Adjust(up.MaxIdle, set.Timeouts.Connect.Std(), up.TLSConfig())
		up.lanes.setOptions(laneOptions(&set.Lanes))
	}
	for name, up := range old {
		switch now := next[name]; {
		case now == nil:
			s.metrics.removeEngine(name)
		case now.contact != up.contact: // another engine under its name
			s.placer.Forget(s.now(), name)
		default:
			continue
		}
		up.end()
		s.leaving.add(up)
	}
	s.changes.announce()
	if c := s.cluster.Load(); c != nil {
		if err := c.SetEngines(s.engineNames(), s.traits()); err != nil {
			s.log.Warn("the other proxies hear of the new configuration later", "error", err)
		}
	}
	return changes, nil
}

func (s *Server) engineNames() (names []string) {
	for _, e := range s.fleet.Engines() {
		names = append(names, e.Name)
	}
	return names
}

// LogSettings are the [log] settings in force: whoever made the Server's logger follows them.
func (s *Server) LogSettings() config.Log { return s.settings.Load().Log }

// configView is what /api/config shows.
type configView struct {
	File   string    `json:"file"`
	SHA256 string    `json:"sha256"` // of the file in force, as sha256sum prints it
	Number int       `json:"number"` // 1 = the one at the start
	Since  time.Time `json:"since"`
	Failed string    `json:"last_reload_error,omitempty"` // why a newer file is not in force
}

func (s *Server) configView() configView {
	set, last := s.settings.Load(), s.reloads.state.Load()
	v := configView{File: set.File(), SHA256: set.Digest(), Number: last.number, Since: last.at}
	if last.failed != nil {
		v.Failed = last.failed.Error()
	}
	return v
}

// countReloads makes the series of reloads.
func (s *Server) countReloads(set *metrics.Set) {
	l := &s.reloads
	l.state.Store(&reloadState{number: 1, at: s.started})
	count := func(result string) *metrics.Counter {
		return set.NewCounter(fmt.Sprintf(`warmring_config_reloads_total{result=%q}`, result))
	}
	l.applied, l.refused, l.invalid = count("applied"), count("refused"), count("invalid")
	set.NewGauge("warmring_config_last_success_timestamp_seconds", func() float64 {
		return float64(l.state.Load().at.UnixMilli()) / 1000
	})
	set.NewGauge("warmring_engines_leaving", func() float64 { return float64(len(s.leaving.all())) }) // taken out, with requests to end
	set.NewGauge("warmring_config_stale", func() float64 {                                            // 1 = the last reload failed, so that a newer file is not in force
		if l.state.Load().failed != nil {
			return 1
		}
		return 0
	})
}
