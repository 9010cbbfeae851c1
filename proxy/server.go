// Package proxy is the life of one request: receive, identify, place, exchange,
// hold, relay, learn. It stands between clients on a fasthttp server and engines
// on abortable exchanges, asks ring where a prompt belongs, and tells ring and
// operators what came of it.
//
// One goroutine per client connection runs a request up to its commit point and
// is then pulled through the relay; the hang-up watcher is the only other one
// that touches it. Bounds: bodies by server.max_body, connections by
// server.max_connections, waiting requests by retry.max_waiting, what is held
// before a commit point by constants in hold.go. See DESIGN.md.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/gossip"
	"github.com/warmring/warmring/ring/prompt"
)

// maxResponses bounds the Responses API ids whose sessions are remembered, two
// entries of 24 bytes of payload each; the oldest go first.
const maxResponses = 200_000

// Options is what a Server is made with besides its configuration.
type Options struct {
	// Log gets one line per request and what goes wrong. nil discards.
	Log *slog.Logger
	// Version is shown by the admin API.
	Version string
}

// Server is the proxy. Make it with New, run it with Serve.
type Server struct {
	cfg          *config.Config // as it was at the start: for what no reload changes
	settings     atomic.Pointer[settings]
	contacts     atomic.Pointer[map[string]*upstream]
	log          *slog.Logger
	version      string
	fleet        *engines.Fleet
	placer       *ring.Placer
	memory       *prompt.Memory
	tenantSecret string
	secretPrint  uint32 // of it, for the other proxies; 0 = not told
	metrics      *metricSet
	recent       *recentRequests
	previous     *lru.Cache[uint64, turnOf]
	hangups      *hangups
	http         *fasthttp.Server
	admin        *fasthttp.Server
	ids          idSource
	started      time.Time
	cluster      atomic.Pointer[gossip.Cluster] // nil = alone

	requests  sync.Pool
	scratches sync.Pool
	live      liveRequests
	changes   changes
	waiters   waiters
	foreign   foreignTurns // short turns of other proxies
	pleas     pleas        // own ones that wait behind prefills of other proxies
	reloads   reloads
	leaving   leaving
	placing   sync.Mutex // held by updatePlacer, so that no older list comes after a newer one

	unparsedTold atomic.Int64 // when the log was last told of an unreadable prompt
	settled      atomic.Bool  // every engine was asked once
	draining     atomic.Bool  // readiness says no: balancers are to send nothing more
	refusing     atomic.Bool  // new requests are refused
	stopped      atomic.Bool
	stopping     chan struct{} // closed when running requests are cut
	background   sync.WaitGroup
}

// New makes a proxy for cfg. Nothing is opened before Serve.
func New(cfg *config.Config, opt Options) (*Server, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	set, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: opt.Log, version: opt.Version,
		tenantSecret: cfg.Identity.Secret.Reveal(),
		started:      time.Now(),
		stopping:     make(chan struct{}),
		reloads:      reloads{started: make(chan struct{})},
		ids:          newIDSource(),
		memory:       prompt.NewMemory(),
	}
	s.settings.Store(set)
	s.placer = ring.New(ring.Options{
		VirtualNodes: cfg.Routing.VirtualNodes, Candidates: cfg.Routing.Candidates,
		Hysteresis: cfg.Routing.Hysteresis.Std(), SessionIdle: cfg.Routing.SessionIdle.Std(),
		MaxSessions: cfg.Routing.MaxSessions, MaxIndexTokens: cfg.Routing.IndexTokens,
	})
	watching := cfg.FleetOptions()
	watching.Logger, watching.OnChange = opt.Log, s.engineChanged
	watching.Turn, watching.OnRead = s.readingTurn, s.tellReading
	s.fleet, err = engines.NewFleet(cfg.Specs(), watching)
	if err != nil {
		return nil, err
	}
	ups := make(map[string]*upstream)
	for i, e := range s.fleet.Engines() {
		ups[e.Name] = s.newUpstream(e, &cfg.Engines[i], nil, set)
	}
	s.contacts.Store(&ups)
	if s.previous, err = lru.New[uint64, turnOf](maxResponses); err != nil {
		return nil, err
	}
	s.metrics = newMetricSet(s)
	s.recent = newRecentRequests()
	s.requests.New = func() any {
		return &request{s: s, gone: make(chan struct{}, 1), lane: lanePart{wake: make(chan wake, 1), over: make(chan struct{}, 1)}}
	}
	s.scratches.New = func() any { return new(scratch) }
	s.updatePlacer()
	return s, nil
}

// now is the clock of every decision: nanoseconds since the proxy started.
func (s *Server) now() int64 { return int64(time.Since(s.started)) }

// engineChanged follows what the probes and passing requests find out.
func (s *Server) engineChanged(e *engines.Engine, what engines.Change) {
	if what&engines.Restarted != 0 {
		s.placer.Forget(s.now(), e.Name)
		if up := s.upstreams()[e.Name]; up != nil {
			up.lanes.forget()
			up.kept.forget()
			up.noAbort.Store(false)
			up.caches.Store(false)
		}
	}
	s.updatePlacer()
	if st := placerState(e.State()); st == ring.Down || st == ring.Draining {
		if up := s.upstreams()[e.Name]; up != nil {
			up.lanes.evict()
		}
	}
	s.tellOthers(e, what)
	s.changes.announce()
}

// updatePlacer tells the placer the engines as they are now.
func (s *Server) updatePlacer() {
	s.placing.Lock()
	defer s.placing.Unlock()
	var list []ring.Engine
	for _, e := range s.fleet.Engines() {
		list = append(list, ring.Engine{Name: e.Name, Weight: e.Weight, KVTokens: e.KVTokens(), Models: modelIDs(e), State: placerState(e.State())})
	}
	s.placer.SetEngines(s.now(), list)
}

// modelIDs lists what an engine serves; nil, meaning any, while it is unknown.
func modelIDs(e *engines.Engine) []string {
	var ids []string
	for _, m := range e.Models() {
		ids = append(ids, m.ID)
	}
	return ids
}

func placerState(st engines.State) ring.State {
	switch st {
	case engines.Ready:
		return ring.Ready
	case engines.Busy:
		return ring.Busy
	case engines.Draining:
		return ring.Draining
	}
	return ring.Down
}

// Serve answers clients on ln, and operators on admin unless that is nil, until
// ctx ends; then it drains: readiness turns false, what comes within drain.delay is
// still served, then new requests get 503, running ones may end within drain.limit, and what is left is cut with the family's
// error event. It returns when everything it started has ended. Serve may be
// called once.
func (s *Server) Serve(ctx context.Context, ln, admin net.Listener) error {
	var err error
	if s.hangups, err = newHangups(); err != nil {
		return fmt.Errorf("watching client connections: %w", err)
	}
	defer s.hangups.close()
	started := sync.OnceFunc(func() { close(s.reloads.started) })
	defer started()
	if err := s.OpenCluster(); err != nil {
		return err
	}
	defer s.leaveCluster()
	probing, stopProbing := context.WithCancel(context.Background())
	var probes sync.WaitGroup
	probes.Go(func() { s.fleet.Run(probing) })
	probes.Go(func() { s.reap(probing) })
	defer probes.Wait()
	defer stopProbing()

	failed := make(chan error, 2)
	running := 1
	if admin != nil {
		s.admin = s.newAdmin()
		running++
		go func() { failed <- s.admin.Serve(admin) }()
	}
	s.settle(ctx)
	s.http = s.newHTTP()
	go func() { failed <- s.http.Serve(newListener(ln, s.hangups, s.cfg.Server.MaxConnections)) }()
	started()
	select {
	case err = <-failed:
		running--
	case <-ctx.Done():
		s.drain()
	}
	// One call only: a second one returns at once whatever is still running.
	closing, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	s.cut()
	if e := s.http.ShutdownWithContext(closing); e != nil && err == nil && !errors.Is(e, context.DeadlineExceeded) {
		err = e
	}
	if s.admin != nil {
		_ = s.admin.ShutdownWithContext(closing)
	}
	for ; running > 0; running-- {
		<-failed
	}
	<-s.live.empty()
	s.background.Wait()
	s.reloads.mu.Lock() // one under way comes to its end, and there is no other
	defer s.reloads.mu.Unlock()
	for _, up := range s.upstreams() {
		up.lanes.close()
		up.pool.Close()
	}
	return err
}

// reap closes connections to engines that have rested for too long, until ctx
// ends.
func (s *Server) reap(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			for _, up := range s.upstreams() {
				up.pool.Reap(now)
			}
			s.leaving.gone(func(up *upstream) {
				s.log.Info("engine taken out: its last request has ended", "engine", up.Name, "url", up.Target.String())
			})
		}
	}
}

// settle waits until every engine was asked once, or for as long as one probe may
// take. A proxy that placed turns before that would take sessions away from
// engines that it has merely not heard of yet. Clients that come meanwhile wait in
// the listener's queue.
func (s *Server) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Probe.Timeout.Std())
	defer cancel()
	if err := s.fleet.Settled(ctx); err != nil {
		s.log.Warn("serving before all engines have answered a probe", "error", err)
	}
	s.settled.Store(true)
}

// drain lets running requests end. The listener stays open all the while, so
// that balancers can see that this proxy is leaving; what they send until they
// have seen it is served (C212).
func (s *Server) drain() {
	s.draining.Store(true)
	d := s.settings.Load().Drain
	s.log.Info("draining", "running", s.live.count(), "limit", d.Limit.String())
	delay := time.NewTimer(d.Delay.Std())
	defer delay.Stop()
	limit := time.NewTimer(d.Delay.Std() + d.Limit.Std())
	defer limit.Stop()
	<-delay.C
	s.refusing.Store(true)
	select {
	case <-s.live.empty():
	case <-limit.C:
		s.log.Warn("drain limit passed: cutting what is left", "running", s.live.count())
	}
}

// cut ends every running request.
func (s *Server) cut() {
	if s.stopped.CompareAndSwap(false, true) {
		s.draining.Store(true)
		s.refusing.Store(true)
		close(s.stopping)
		s.live.cancelAll()
	}
}

func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.malformed,
		ExpectHandler:                s.expect,
		Name:                         "",
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true, // bodies pass byte for byte
		ReadBufferSize:               int(s.cfg.Server.MaxHeader),
		MaxRequestBodySize:           int(s.cfg.Server.MaxBody),
		ReadTimeout:                  s.cfg.Server.ReadTimeout.Std(),
		IdleTimeout:                  s.cfg.Server.IdleTimeout.Std(),
		Concurrency:                  2 * s.cfg.Server.MaxConnections, // the listener counts; a worker ends a little after its connection
		CloseOnShutdown:              true,
		ReduceMemoryUsage:            true, // a stream keeps neither its request nor its reading buffer; see clientConn.Read
		SecureErrorLogMessage:        true,
		Logger:                       discardLogger{},
	}
}

// discardLogger drops the server's own lines: what happens to a request is told
// by its access line.
type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}
