package lane

import "time"

// threshold is how many times the room that is free one tenant may hold of the queue (dynamic thresholds, Choudhury and
// Hahne 1998): alone it may fill four fifths of it, two may fill eight ninths, and whoever has nothing there finds a place.
const threshold = 4

// roomFor says whether a long request may be held.
func (c *Controller) roomFor(a *Arrival) bool {
	n, size := c.queue.of(a.Tenant)
	free := c.opt.MaxHeld - c.queue.len()
	if free <= 0 || c.opt.MaxHeldPerTenant > 0 && n >= c.opt.MaxHeldPerTenant || n > 0 && n+1 > threshold*(free-1) {
		return false
	}
	if c.held == 0 {
		return true // one is held whatever its size
	}
	bytes := int64(max(a.Bytes, 0))
	left := c.opt.MaxHeldBytes - c.held - bytes
	return left >= 0 && (n == 0 || size+bytes <= threshold*left)
}

const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// RetryAfter is when a long request that was refused may find a place: what long prompts have left to compute, in the proxy
// and at the engine, at the known pace; from 1 s to 60 s.
func (c *Controller) RetryAfter(now int64) time.Duration {
	left := c.queue.fresh
	for _, i := range c.back {
		left += int64(c.all[i].fresh)
	}
	wait := float64(left) / c.engine.rate()
	for _, i := range c.flight {
		r := &c.all[i]
		wait += seconds(max(c.engine.left(r)-max(now-r.began, 0), 0))
	}
	return min(max(time.Duration(min(wait, maxRetry.Seconds())*float64(time.Second)), minRetry), maxRetry)
}
