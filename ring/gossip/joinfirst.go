package gossip

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// askAtMost is how many addresses a joiner asks in one round: where so many know nothing, all of them have just begun.
const askAtMost = 64

// joinFirst waits for the state of a member that is ready. One that is joining itself answers as well, and knows nothing yet: after a
// crash of several proxies the two that begin again find each other as soon as they find those that stayed. So its state ends the wait
// only when there is nobody else to ask, which is so where all begin at once.
func (c *Cluster) joinFirst() {
	deadline := time.Now().Add(c.opt.ReadyLimit)
	for {
		asked, perhaps := c.askRound(deadline)
		if c.base.Err() != nil {
			return
		}
		switch {
		case c.settled.Load(): // perhaps by one that came to us
			c.becomeReady(false)
			return
		case time.Now().After(deadline):
			c.becomeReady(c.members.count() == 0)
			return
		case !perhaps && c.resolvedAll() && (c.members.count() > 0 || asked == 0):
			c.becomeReady(c.members.count() == 0) // all of them have just begun, or the names have no address but ours: we are the first
			return
		}
		if !sleep(c.base, jitter(300*time.Millisecond)) {
			return
		}
	}
}

// askRound joins those that the names lead to, and the members that it hears of thereby, until one gives the state that is wanted. It
// returns how many it asked, and whether somebody is there perhaps who would have that state and did not give it.
func (c *Cluster) askRound(deadline time.Time) (asked int, perhaps bool) {
	done := map[string]bool{c.Address(): true} // members of earlier lives of this proxy have that
	for addresses := c.missing(); asked < askAtMost; addresses = addresses[1:] {
		if len(addresses) == 0 {
			if addresses = c.unasked(done); len(addresses) == 0 {
				return asked, perhaps
			}
		}
		address := addresses[0]
		if done[address] {
			continue
		}
		if c.settled.Load() || c.base.Err() != nil || time.Now().After(deadline) {
			return asked, perhaps
		}
		done[address] = true
		asked++
		if err := c.attempt(address); err != nil && !errors.Is(err, errOurself) && !refused(err) {
			perhaps = true // it hung up, or is slow: it may be busy
		}
	}
	return asked, perhaps
}

// unasked are the addresses of members that are not done, in random order.
func (c *Cluster) unasked(done map[string]bool) (list []string) {
	for _, m := range c.members.all() {
		if a := m.address(); !done[a] {
			list = append(list, a)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// refused tells that nothing listens at an address. The library hands errors on as text.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), syscall.ECONNREFUSED.Error())
}
