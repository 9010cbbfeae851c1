package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// join finds other members at the start and whenever some are missing.
//
// At the start the state of any one that is ready will do (joinFirst); the others come by gossip. Later the names are looked up again and again: a
// member that is in them but not in the list was cut off from us. Members that were lost are tried one a second, as after a
// cut both sides take each other for dead and nothing but a new join brings them together.
func (c *Cluster) join() {
	c.joinFirst()
	looked := time.Now()
	company := looked // when there were others last, or could have been for the first time
	spread := jitter(time.Second).Seconds()
	for sleep(c.base, jitter(500*time.Millisecond)) {
		now := time.Now()
		if address := c.members.toTry(now); address != "" {
			c.tryJoin(address)
		}
		others := c.members.count() > 0
		if others {
			company = now
		}
		pause := lookPause(now.Sub(company), c.opt.Rejoin)
		if others {
			pause = c.opt.Rejoin
		}
		if now.Sub(looked).Seconds() < pause.Seconds()*spread {
			continue
		}
		if others {
			c.lonely.ended()
		}
		looked, spread = now, jitter(time.Second).Seconds()
		missing := c.missing()
		for _, address := range missing[:min(len(missing), 3)] {
			c.tryJoin(address)
		}
		c.warnLonely(now.Sub(company))
	}
}

// lookPause is how long one that has been alone for so long waits before it looks the names up again: where proxies begin before DNS has heard
// of them, the names lead each only to itself at first. 1.5 s in the first minute, then a fortieth of the time alone, up to rejoin.
func lookPause(alone, rejoin time.Duration) time.Duration {
	return min(max(alone/40, 1500*time.Millisecond), rejoin)
}

func (c *Cluster) tryJoin(address string) bool { return c.attempt(address) == nil }

// errOurself is what an attempt to join ourselves ends with: by an address that others know and we do not.
var errOurself = errors.New("it is this proxy itself")

// attempt joins the member at an address. Where it returns nil, the state of that member has been taken in.
func (c *Cluster) attempt(address string) error {
	if err := c.base.Err(); err != nil {
		return err
	}
	since := c.lonely.trying()
	if _, err := c.list.Join([]string{address}); err != nil {
		c.counts.joinFails.Add(1)
		c.lonely.failed(since, joinError(address, err))
		return err
	}
	c.counts.joins.Add(1)
	if c.members.count() == 0 {
		c.selves[address] = true
		return errOurself
	}
	return nil
}

// missing looks the names up and returns the addresses that are neither ours nor a member's, in random order.
func (c *Cluster) missing() []string {
	own := c.Address()
	var out []string
	seen := map[string]bool{own: true}
	c.unresolved = 0
	since := c.lonely.trying()
	for _, name := range c.opt.Join {
		list, err := c.lookup(c.base, name)
		if err != nil {
			c.unresolved++
			c.counts.lookupFails.Add(1)
			c.lonely.failed(since, fmt.Errorf("look up cluster.join %q: %w", name, err))
			continue
		}
		for _, address := range list {
			if !seen[address] && !c.selves[address] && !c.members.has(address) {
				seen[address] = true
				out = append(out, address)
			}
		}
	}
	c.lonely.expected.Store(len(out)+c.unresolved > 0)
	if slices.ContainsFunc(c.opt.Join, mayChange) {
		c.lonely.hoped.Store(true)
		if len(out)+c.unresolved == 0 && c.members.count() == 0 {
			c.lonely.failed(since, errOnlyOurs)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// mayChange tells whether a name to join may lead to others another time: addresses lead where they always do.
func mayChange(name string) bool {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}

// resolvedAll tells whether the last look-up found every name.
func (c *Cluster) resolvedAll() bool { return c.unresolved == 0 }

// lookUp returns the addresses of a "host:port".
func lookUp(ctx context.Context, name string) ([]string, error) {
	host, service, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(port))}, nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ip := range list {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(port)))
	}
	return out, nil
}

// jitter spreads what many members do: ±15 %.
func jitter(d time.Duration) time.Duration { return d*85/100 + rand.N(d*30/100+1) }
