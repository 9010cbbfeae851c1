package gossip

import (
	"fmt"
	"time"
)

// Close tells the others that this member leaves, with its last news, and ends everything that was started. It takes up to
// about a second.
func (c *Cluster) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.sendNews(c.now())
	c.sendLoads(c.now(), true) // nothing is charged any more
	c.sayGoodbye()
	err := c.list.Leave(500 * time.Millisecond)
	if c.members.count() > 0 {
		time.Sleep(100 * time.Millisecond) // the word goes round by gossip: two rounds of it
	}
	c.stop()
	if e := c.list.Shutdown(); err == nil {
		err = e
	}
	c.work.Wait()
	if err != nil {
		return fmt.Errorf("leave cluster: %w", err)
	}
	return nil
}

// Abandon ends everything at once without a word to the others, as a crash would.
func (c *Cluster) Abandon() {
	if c.closed.Swap(true) {
		return
	}
	c.stop()
	_ = c.list.Shutdown()
	c.work.Wait()
}
