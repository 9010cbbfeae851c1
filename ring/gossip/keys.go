package gossip

import (
	"errors"
	"fmt"
)

// SetKeys changes the keys while running. To rotate without a gap: add the new one behind the old one everywhere, then put it
// first everywhere, then drop the old one everywhere. A cluster that began without keys cannot get any.
func (c *Cluster) SetKeys(keys [][]byte) error {
	if c.keyring == nil || len(keys) == 0 {
		return errors.New("cluster keys: encryption cannot be turned on or off while running")
	}
	for _, key := range keys {
		if err := c.keyring.AddKey(key); err != nil {
			return fmt.Errorf("cluster keys: %w", err)
		}
	}
	if err := c.keyring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("cluster keys: %w", err)
	}
	for _, old := range c.keyring.GetKeys() {
		keep := false
		for _, key := range keys {
			keep = keep || string(key) == string(old)
		}
		if !keep {
			if err := c.keyring.RemoveKey(old); err != nil {
				return fmt.Errorf("cluster keys: %w", err)
			}
		}
	}
	return nil
}
