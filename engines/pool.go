package engines

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PoolOptions bounds the connections kept to one engine. Zero values take the
// defaults named beside each field.
type PoolOptions struct {
	// MaxIdle is how long a connection may rest before it is no longer reused.
	// vLLM and SGLang close idle connections after 5.00 s (measured), so a value
	// of 5 s and more makes requests meet connections that are being closed.
	// Default 3 s.
	MaxIdle time.Duration
	// MaxIdleConns bounds the resting connections; surplus ones are closed.
	// Default 1024.
	MaxIdleConns int
	// ConnectTimeout bounds one dial, TLS handshake included. Default 2 s.
	ConnectTimeout time.Duration
	// TLS is used when the target asks for https. Default: verify against the
	// system's roots.
	TLS *tls.Config
	// Dial replaces the dialer in tests. Default: dual-stack TCP with keep-alive.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// OnStale is told of each connection found dead when reused, on the goroutine
	// of the request that met it: it must not block. The engine may be another
	// process by now. nil = nobody.
	OnStale func()
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Pool keeps the connections to one engine, newest first: the connection used
// last is the one least likely to be closing. It is safe for concurrent use.
type Pool struct {
	target Target
	opt    PoolOptions

	mu     sync.Mutex
	idle   []*conn // oldest first
	closed bool

	// Dials counts connections opened, Stale the ones found dead when reused.
	Dials, Stale atomic.Uint64
	open         atomic.Int64
}

// conn is one connection with the time it came to rest.
type conn struct {
	net.Conn
	rested time.Time
	reused bool
}

// NewPool returns an empty pool for the engine at target.
func NewPool(target Target, opt PoolOptions) *Pool {
	if opt.MaxIdle <= 0 {
		opt.MaxIdle = 3 * time.Second
	}
	if opt.MaxIdleConns <= 0 {
		opt.MaxIdleConns = 1024
	}
	if opt.ConnectTimeout <= 0 {
		opt.ConnectTimeout = 2 * time.Second
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Dial == nil {
		dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4}}
		opt.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	return &Pool{target: target, opt: opt}
}

// Adjust changes how long connections rest and how new ones are made; a reload may. Values as in PoolOptions.
func (p *Pool) Adjust(maxIdle, connectTimeout time.Duration, secure *tls.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opt.MaxIdle, p.opt.ConnectTimeout, p.opt.TLS = maxIdle, connectTimeout, secure
}

// Target is the engine's address that this pool dials.
func (p *Pool) Target() *Target { return &p.target }

// Open is the number of connections in existence: resting and in use.
func (p *Pool) Open() int64 { return p.open.Load() }

// rested takes the newest resting connection that is still good, or nil.
func (p *Pool) rested() *conn {
	for {
		c := p.newest()
		if c == nil || quiet(c.Conn) {
			return c
		}
		p.foundStale()
		p.discard(c)
	}
}

func (p *Pool) foundStale() {
	p.Stale.Add(1)
	if p.opt.OnStale != nil {
		p.opt.OnStale()
	}
}

// newest takes the newest resting connection, or nil. Connections that rested
// too long are closed on the way; when the newest is too old all are.
func (p *Pool) newest() *conn {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		return nil
	}
	c := p.idle[n-1]
	if p.opt.Now().Sub(c.rested) > p.opt.MaxIdle {
		old := p.idle
		p.idle = nil
		p.mu.Unlock()
		for _, c := range old {
			p.discard(c)
		}
		return nil
	}
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	p.mu.Unlock()
	c.reused = true
	return c
}

// rest gives a connection back for reuse. The caller has read its answer to the
// end and nothing behind it.
func (p *Pool) rest(c *conn) {
	now := p.opt.Now()
	var drop []*conn
	p.mu.Lock()
	switch {
	case p.closed || len(p.idle) >= p.opt.MaxIdleConns:
		drop = append(drop, c)
	default:
		c.rested = now
		p.idle = append(p.idle, c)
		// The oldest ones are in front: drop those nobody needed for MaxIdle, a
		// few at a time, so that a burst's connections do not stay for ever.
		for i := 0; i < 2 && len(p.idle) > 1 && now.Sub(p.idle[0].rested) > p.opt.MaxIdle; i++ {
			drop = append(drop, p.idle[0])
			copy(p.idle, p.idle[1:])
			p.idle[len(p.idle)-1] = nil
			p.idle = p.idle[:len(p.idle)-1]
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		p.discard(c)
	}
}

// Reap closes the connections that have rested for longer than MaxIdle. To be
// called every second or so: without it they would wait for the next request, with
// the engine's side closed long before.
func (p *Pool) Reap(now time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].rested) > p.opt.MaxIdle {
		n++
	}
	old := append([]*conn(nil), p.idle[:n]...)
	p.idle = slices.Delete(p.idle, 0, n)
	p.mu.Unlock()
	for _, c := range old {
		p.discard(c)
	}
}

func (p *Pool) discard(c *conn) {
	p.open.Add(-1)
	_ = c.Close()
}

// dial opens a connection within the connect timeout.
func (p *Pool) dial(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	opt := p.opt
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, opt.ConnectTimeout)
	defer cancel()
	p.Dials.Add(1)
	nc, err := opt.Dial(ctx, p.target.Address)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within the connect timeout of %v: %w", opt.ConnectTimeout, err)
		}
		return nil, fmt.Errorf("dialing %s: %w", p.target.Address, err)
	}
	nc = Direct(nc)
	if p.target.TLS {
		cfg := opt.TLS.Clone()
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if cfg.ServerName == "" {
			cfg.ServerName = p.target.Name
		}
		tc := tls.Client(nc, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", p.target.Address, err)
		}
		nc = tc
	}
	p.open.Add(1)
	return &conn{Conn: nc}, nil
}

// Close closes the resting connections; ones in use are closed when they are
// given back. It may be called more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		p.discard(c)
	}
}
