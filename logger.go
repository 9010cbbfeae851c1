package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/warmring/warmring/config"
)

// logHandler hands lines to a handler that a reload replaces. Loggers made from it before follow.
type logHandler struct {
	now  *atomic.Pointer[slog.Handler]
	with []func(slog.Handler) slog.Handler // attributes and groups of this logger, laid over whichever handler it is
}

func newLogHandler(c config.Log, w io.Writer) *logHandler {
	h := &logHandler{now: new(atomic.Pointer[slog.Handler])}
	h.set(c, w)
	return h
}

// set puts another format and level in force.
func (h *logHandler) set(c config.Log, w io.Writer) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated by config
	opt := &slog.HandlerOptions{Level: level}
	var next slog.Handler = slog.NewTextHandler(w, opt)
	if c.Format == "json" {
		next = slog.NewJSONHandler(w, opt)
	}
	h.now.Store(&next)
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.now.Load()).Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	to := *h.now.Load()
	for _, lay := range h.with {
		to = lay(to)
	}
	return to.Handle(ctx, r)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.lay(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return h.lay(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *logHandler) lay(one func(slog.Handler) slog.Handler) *logHandler {
	return &logHandler{now: h.now, with: append(slices.Clip(h.with), one)}
}

var _ slog.Handler = (*logHandler)(nil)
