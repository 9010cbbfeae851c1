package engines

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// dialer reaches IPv4 and IPv6 alike (fasthttp's own default only IPv4). Keep-alives every 30 s hold a silent flow open in middleboxes during a long prefill, and notice a vanished host in
// about 90 s (C073).
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4},
	}
}

// Dial opens a connection to the engine, TLS included, within FleetOptions.ConnectTimeout. Names are resolved anew for each connection (C158).
func (e *Engine) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.fleet.options().ConnectTimeout)
	defer cancel()
	conn, err := dialer(e.fleet.options().ConnectTimeout).DialContext(ctx, "tcp", e.Target.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to engine %q at %s: %w", e.Name, e.Target.Address, err)
	}
	if !e.Target.TLS {
		return conn, nil
	}
	secure := tls.Client(conn, e.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to engine %q at %s: TLS: %w", e.Name, e.Target.Address, err)
	}
	return secure, nil
}

// TLSConfig is a copy of how its certificate is checked; nil for http engines.
func (e *Engine) TLSConfig() *tls.Config {
	if e.tls == nil {
		return nil
	}
	return e.tls.Clone()
}

func tlsConfig(s *Spec, t *Target) (*tls.Config, error) {
	if !t.TLS {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.Name, InsecureSkipVerify: s.InsecureSkipVerify, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.ServerName != "" {
		c.ServerName = s.ServerName
	}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("engine %q: read CA file: %w", s.Name, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("engine %q: CA file %q holds no PEM certificate", s.Name, s.CAFile)
		}
	}
	return c, nil
}
