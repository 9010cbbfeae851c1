package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// libraryLog turns memberlist's log lines into slog records. Strangers can make it write as many as they like: lines that begin
// alike come once in ten seconds, with the number of those left out.
type libraryLog struct {
	log   *slog.Logger
	wrong atomic.Uint64 // packets and streams that could not be decrypted or read

	mu   sync.Mutex
	told map[string]*toldLine
	now  func() time.Time
}

type toldLine struct {
	at   time.Time
	left int
}

const (
	tellAgain = 10 * time.Second
	maxTold   = 64
)

func newLibraryLog(log *slog.Logger) *libraryLog {
	return &libraryLog{log: log, told: make(map[string]*toldLine), now: time.Now}
}

// Write takes one line, such as "[WARN] memberlist: Refuting a suspect message (from: x)".
func (l *libraryLog) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(line, "["); ok {
		word, rest, _ := strings.Cut(rest, "]")
		line = strings.TrimSpace(rest)
		switch word {
		case "DEBUG":
			return len(p), nil
		case "WARN":
			level = slog.LevelWarn
		case "ERR", "ERROR":
			level = slog.LevelWarn // nothing that another host does is an error of this one
		}
	}
	line = strings.TrimPrefix(line, "memberlist: ")
	for _, what := range [...]string{"Decrypt packet failed", "ailed to receive", "unacceptable label", "not supported", "Failed to decode", "invalid checksum", "missing message type", "encryption is",
		"Failed to read remote state", "invalid msgType", "Failed push/pull merge", "Too many pending"} {
		if strings.Contains(line, what) {
			l.wrong.Add(1)
			break
		}
	}
	if left, tell := l.due(line); tell {
		attributes := []slog.Attr{slog.String("message", line)}
		if left > 0 {
			attributes = append(attributes, slog.Int("more", left))
		}
		l.log.LogAttrs(context.Background(), level, "gossip", attributes...)
	}
	return len(p), nil
}

// due tells whether a line should be told, and how many that began alike were not.
func (l *libraryLog) due(line string) (left int, tell bool) {
	kind := line[:min(len(line), 24)]
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t := l.told[kind]
	if t == nil {
		if len(l.told) >= maxTold {
			clear(l.told)
		}
		l.told[kind] = &toldLine{at: now}
		return 0, true
	}
	if now.Sub(t.at) < tellAgain {
		t.left++
		return 0, false
	}
	left = t.left
	t.at, t.left = now, 0
	return left, true
}
