package engines

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	pageLimit  = 4 << 20 // of /metrics; a page of a fleet member is 50 KB, of a big one 1 MB
	factsLimit = 1 << 20 // of anything else
)

// client sends probes to one engine. It is net/http, not the exchange that carries requests: a probe must end with its context, and speed is no matter at one a second. Each probe has its own
// connection: it follows DNS (C158), meets no connection that dies of age, and finds out that the engine still accepts.
type client struct {
	engine  *Engine
	http    http.Client
	timeout time.Duration
	page    bytes.Buffer // reused for each answer
	sent    uint64
	failed  uint64
}

func newClient(e *Engine) *client {
	c := &client{engine: e, timeout: e.fleet.options().ProbeTimeout}
	transport := &http.Transport{
		DialContext:            dialer(e.fleet.options().ConnectTimeout).DialContext,
		TLSClientConfig:        e.TLSConfig(),
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 alone, as requests use it
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	c.http = http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

var errTooBig = errors.New("the answer is too big")

// get asks for a path as a client would name it ("/v1/models", "/metrics"). The body is valid until the next call.
func (c *client) get(ctx context.Context, path string, limit int64) (status int, body []byte, err error) {
	return c.do(ctx, http.MethodGet, path, nil, limit, c.timeout)
}

func (c *client) do(ctx context.Context, method, path string, send []byte, limit int64, timeout time.Duration) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e := c.engine
	scheme := "http://"
	if e.Target.TLS {
		scheme = "https://"
	}
	url := string(e.Target.AppendPath([]byte(scheme+e.Target.Address), []byte(path)))
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(send))
	if err != nil {
		return 0, nil, fmt.Errorf("probe %s of engine %q: %w", path, e.Name, err)
	}
	request.Host = e.Target.Host
	request.Header.Set("User-Agent", "warmring-probe")
	if send != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range e.Headers {
		request.Header.Set(name, value)
	}
	if e.APIKey != "" {
		request.Header.Set("Authorization", "Bearer "+e.APIKey)
	}
	c.sent++
	response, err := c.http.Do(request)
	if err != nil {
		c.failed++
		return 0, nil, err
	}
	defer response.Body.Close()
	if c.page.Cap() > 256<<10 {
		c.page = bytes.Buffer{} // one big page must not be kept for good
	}
	c.page.Reset()
	if _, err := c.page.ReadFrom(io.LimitReader(response.Body, limit+1)); err != nil {
		c.failed++
		return 0, nil, err
	}
	if int64(c.page.Len()) > limit {
		return response.StatusCode, nil, errTooBig
	}
	return response.StatusCode, c.page.Bytes(), nil
}

// judge turns the error of a probe into a verdict.
func (c *client) judge(err error, path string, sent time.Time) verdict {
	v := verdict{kind: probeSilent, sent: sent}
	var timeout net.Error
	var operation *net.OpError
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded):
		v.reason = fmt.Sprintf("%s did not answer within %v", path, c.timeout)
	case errors.As(err, &name):
		v.reason = fmt.Sprintf("the name %q cannot be resolved", c.engine.Target.Name) // the address may be fine: DNS alone must not empty a fleet at once
	case errors.As(err, &certificate):
		v.kind, v.reason = probeRefused, "its certificate is not trusted: "+certificate.Err.Error()
	case errors.As(err, &operation) && operation.Op == "dial":
		v.kind, v.reason = probeRefused, "cannot connect: "+operation.Err.Error()
	case errors.Is(err, errTooBig):
		v.kind, v.reason = probeLoading, path+" answers something far too big"
	default:
		v.reason = path + " broke off: " + lastCause(err)
	}
	return v
}

func lastCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
