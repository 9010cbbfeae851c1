package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/warmring/warmring/config"
)

// A reload changes level and form for loggers that were handed out long before, and they keep what was added to them.
func TestTheLogFollowsAReload(t *testing.T) {
	var out bytes.Buffer
	h := newLogHandler(config.Log{Format: "text", Level: "warn"}, &out)
	log := slog.New(h).With("part", "cluster").WithGroup("g").With("a", 1)
	log.Info("too low")
	log.Warn("first")
	h.set(config.Log{Format: "json", Level: "debug"}, &out)
	log.Debug("second", "b", 2)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], `level=WARN msg=first part=cluster g.a=1`) || !strings.HasSuffix(lines[1], `"level":"DEBUG","msg":"second","part":"cluster","g":{"a":1,"b":2}}`) {
		t.Errorf("%q", lines)
	}
}
