package sim

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ServerOptions describe a simulated engine with its HTTP face. The zero value is a vLLM.
type ServerOptions struct {
	Options

	// Speed is simulated seconds per real second: 10 makes everything that the cost model, the abort
	// polls and the health check take ten times as fast. Default 1.
	Speed float64
	// Models are the served names; the first answers requests that name none. Default "sim".
	Models []string
	// Tokenizer replaces the built-in 4-bytes-a-token one.
	Tokenizer Tokenizer
	// TokenizeBody replaces rendering and tokenizing: it gets a request's path and body and returns the
	// ids of its prompt, nil for the usual way. For comparing with a real engine, whose template and
	// vocabulary decide.
	TokenizeBody func(path string, body []byte) []uint64
	// AnswerTokens is the natural length of an answer. 0: an answer runs to the request's limit, or to 16
	// tokens if it has none or gives tools.
	AnswerTokens int
	// HideCached leaves cached token details out of usage (engines without the flag for it).
	HideCached bool
	// APIKey, if set, must be the bearer token on /v1 paths.
	APIKey string

	// KeepAlive is when idle connections are closed. Default 5 s, as in both engines.
	KeepAlive time.Duration
	// AbortPoll is how often SGLang looks for a client's close before its first token, counted from the
	// request. Default 4 s for SGLang, else closes are seen at once.
	AbortPoll time.Duration
	// StreamAbortPoll is the same for a started stream: 0 (seen at once, as measured on 0.5.23); 2 s was
	// read in older sources.
	StreamAbortPoll time.Duration
	// HealthDelay is what /health takes. Default 1 s for SGLang, which generates a token for it.
	HealthDelay time.Duration

	// KeepBodies keeps request bodies in the journal.
	KeepBodies bool
	// JournalSize bounds the journal in requests. Default 4096.
	JournalSize int
}

// Server is a simulated engine with an HTTP face.
type Server struct {
	opt     ServerOptions
	engine  *Engine
	journal *journal
	faults  faults
	stored  stored
	buffers sync.Pool // of *[]byte: rendered prompts
	ids     atomic.Uint64
	begun   atomic.Int64 // start of the "process", Unix ns

	http   *http.Server
	base   context.Context // ends at Close
	cancel context.CancelFunc
	work   sync.WaitGroup // handlers, timers, Start's Serve

	mu     sync.Mutex
	gate   *gate
	closed bool
}

// NewServer makes a server; Serve runs it.
func NewServer(opt ServerOptions) *Server {
	if len(opt.Models) == 0 {
		opt.Models = []string{"sim"}
	}
	if opt.KeepAlive <= 0 {
		opt.KeepAlive = 5 * time.Second
	}
	if opt.Mode == SGLang {
		if opt.AbortPoll <= 0 {
			opt.AbortPoll = 4 * time.Second
		}
		if opt.HealthDelay <= 0 {
			opt.HealthDelay = time.Second
		}
	}
	if opt.JournalSize <= 0 {
		opt.JournalSize = 4096
	}
	s := &Server{opt: opt, engine: NewEngine(opt.Options, opt.Speed), journal: newJournal(opt.JournalSize)}
	s.opt.Options = s.engine.Options()
	s.begun.Store(time.Now().UnixNano())
	s.base, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		IdleTimeout:       opt.KeepAlive,
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    4 << 20,
		ErrorLog:          log.New(io.Discard, "", 0), // faults make it talk
		BaseContext:       func(net.Listener) context.Context { return s.base },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
	}
	return s
}

// Start makes a server on a free loopback port and serves there until Close.
func Start(opt ServerOptions) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a simulated engine: %w", err)
	}
	s := NewServer(opt)
	s.attach(l)
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		s.http.Serve(s.gate)
	}()
	return s, nil
}

func (s *Server) attach(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = newGate(l)
}

// Serve answers on a listener until Close, then returns nil. Call it once.
func (s *Server) Serve(l net.Listener) error {
	s.attach(l)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.mu.Unlock()
	if err := s.http.Serve(s.gate); err != http.ErrServerClosed && err != net.ErrClosed {
		return fmt.Errorf("serve a simulated engine on %s: %w", l.Addr(), err)
	}
	return nil
}

// Addr is the host:port served on; empty before Serve.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == nil {
		return ""
	}
	return s.gate.address
}

// URL is the base URL.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Engine is the engine behind the face.
func (s *Server) Engine() *Engine { return s.engine }

// Close resets all connections, ends all handlers and the engine, and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	g := s.gate
	s.mu.Unlock()
	s.cancel()
	if g != nil {
		g.Close()
		s.http.Close()
		g.resetAll()
	}
	s.work.Wait()
	s.engine.Close()
}

// down takes the server off the network: by closing its listener or, crashing, as kill -9 would.
func (s *Server) down(crash bool, back time.Duration) {
	s.mu.Lock()
	g, closed := s.gate, s.closed
	if g == nil || closed {
		s.mu.Unlock()
		return
	}
	if back > 0 {
		s.work.Add(1)
		go func() {
			defer s.work.Done()
			timer := time.NewTimer(back)
			defer timer.Stop()
			select {
			case <-timer.C:
				s.up()
			case <-s.base.Done():
			}
		}()
	}
	s.mu.Unlock()
	g.shut()
	if crash {
		g.resetAll()
		s.engine.Restart()
		s.begun.Store(time.Now().UnixNano())
	}
}

func (s *Server) up() {
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g == nil {
		return
	}
	if err := g.reopen(); err != nil {
		return // somebody took the port meanwhile: connections stay refused
	}
}

// sleep waits for a simulated duration; false if the context ended first.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(s.engine.Real(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
