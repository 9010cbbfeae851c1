package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/proxy/wire"
)

// malformed answers a request that the HTTP server itself could not read: bad
// framing, headers too large, a body over the limit, a sender too slow. It is
// counted and logged like every other outcome.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	status, code, message := s.describe(err)
	ctx.SetConnectionClose()
	h := &ctx.Request.Header
	method, uri := h.Method(), h.RequestURI()
	if c, ok := ctx.Conn().(*clientConn); ok && c.first.n > 0 {
		method, uri = c.first.split()
	}
	path, _ := splitURI(uri)
	route := wire.RouteOf(method, path)
	resp := &ctx.Response
	resp.Reset()
	resp.SetConnectionClose()
	resp.SetStatusCode(status)
	resp.Header.SetContentType("application/json")
	resp.SetBody(wire.ErrorBody(route.Family, status, code, message))
	id := s.requestID(h)
	if s.settings.Load().Headers.RequestID {
		resp.Header.Set("X-Request-Id", id)
	}
	s.metrics.malformed(route.Template, status)
	if s.settings.Load().Log.Access {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "request",
			slog.String("request", id), slog.String("route", route.Template), slog.String("model", "unknown"), slog.Int("status", status),
			slog.String("end", endClientError.String()), slog.String("error", message), slog.Int("bytes_in", max(h.ContentLength(), 0)))
	}
}

func (s *Server) describe(err error) (status int, code, message string) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return fasthttp.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("the request body is larger than server.max_body (%s)", s.cfg.Server.MaxBody)
	case errors.As(err, &small):
		return fasthttp.StatusRequestHeaderFieldsTooLarge, "headers_too_large", fmt.Sprintf("the request's headers are larger than server.max_header (%s)", s.cfg.Server.MaxHeader)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fasthttp.StatusRequestTimeout, "request_timeout", fmt.Sprintf("the request did not arrive within server.read_timeout (%s)", s.cfg.Server.ReadTimeout)
	}
	return fasthttp.StatusBadRequest, "invalid_http", "the request is not valid HTTP/1.1"
}

// expect decides about a body that the client offers with "Expect:
// 100-continue" before it sends it.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if ctx.Request.Header.ContentLength() > int(s.cfg.Server.MaxBody) {
		s.malformed(ctx, fasthttp.ErrBodyTooLarge)
		return fasthttp.StatusRequestEntityTooLarge
	}
	return fasthttp.StatusContinue
}

func stack() string { return string(debug.Stack()) }
