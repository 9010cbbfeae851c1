package gossip

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A proxy that was told of others and finds none serves well by all appearances, while sessions scatter between it and them. So it says
// why it is alone, again and again.

// warnAgain is how often.
const warnAgain = time.Minute

// lonely is what is known of that.
type lonely struct {
	expected atomic.Bool // the names lead, or may lead, to somebody else
	hoped    atomic.Bool // they may do so later

	mu     sync.Mutex
	err    error  // the last one since somebody was found
	ends   uint64 // times that somebody was
	warned time.Time
}

// trying returns what failed wants of an attempt that begins.
func (l *lonely) trying() (since uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends
}

// failed notes why an attempt failed, unless somebody was found while it ran.
func (l *lonely) failed(since uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == since {
		l.err = err
	}
}

// ended notes that somebody was found: the last error is gone with its reason.
func (l *lonely) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
	l.ends++
}

func (l *lonely) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return ""
	}
	return l.err.Error()
}

// due tells whether it is time to warn.
func (l *lonely) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.warned.IsZero() && now.Sub(l.warned) < warnAgain {
		return false
	}
	l.warned = now
	return true
}

// errOnlyOurs is why one is alone whose names lead nowhere else.
var errOnlyOurs = errors.New("cluster.join leads to no address but this proxy's own: is the name right, and does it list proxies that are not ready?")

// isLonely tells whether there should be others and are none.
func (c *Cluster) isLonely() bool {
	return (c.lonely.expected.Load() || c.lonely.hoped.Load()) && c.members.count() == 0
}

// warnLonely warns of that; alone is for how long it has been so. The first of several proxies may be the only one that its name leads to, for a
// moment, and is not warned of at once.
func (c *Cluster) warnLonely(alone time.Duration) {
	if c.isLonely() && (c.lonely.expected.Load() || alone >= warnAgain) && c.lonely.due(time.Now()) {
		c.opt.Log.Warn("cluster: this proxy is alone, although cluster.join tells of others: sessions that reach several proxies scatter", "join", c.opt.Join, "error", c.lonely.last())
	}
}

// joinError says what may be wrong with an attempt to join.
func joinError(address string, err error) error {
	text, hint := err.Error(), "is a proxy there, and may this one reach it by TCP and UDP?"
	var timeout net.Error
	switch {
	case strings.Contains(text, "decrypt"), strings.Contains(text, "encrypt"):
		hint = "cluster.keys of both must have one in common, or both none"
	case refused(err):
		hint = "nothing listens there, or only for TCP or UDP"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), strings.Contains(text, "EOF"), strings.Contains(text, "reset"):
		hint = "it hung up: cluster.name, and cluster.keys, must be those of the others, or it has more connections than it takes (crowded_streams in its /api/cluster)"
	case errors.As(err, &timeout) && timeout.Timeout(), strings.Contains(text, "timeout"):
		hint = "no answer: may this one reach it by TCP and UDP?"
	}
	return fmt.Errorf("join %s: %s; %s", address, strings.Join(strings.Fields(text), " "), hint)
}
