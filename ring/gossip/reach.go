package gossip

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxReach is how many addresses of one name are tried.
const maxReach = 32

// Reach looks join names up and tries their addresses by TCP, for people who set a cluster up; one line for each name, ok if something
// answered. Whether names, keys and UDP are right as well shows only when a proxy joins.
func Reach(ctx context.Context, join []string) (lines []string, ok bool) {
	ok = true
	for _, name := range join {
		addresses, err := lookUp(ctx, name)
		if err != nil {
			lines, ok = append(lines, fmt.Sprintf("cluster.join %q cannot be looked up: %v; a proxy that finds nobody works alone", name, err)), false
			continue
		}
		var mu sync.Mutex
		var silent []string
		var all sync.WaitGroup
		for _, address := range addresses[:min(len(addresses), maxReach)] {
			all.Go(func() {
				dialer := net.Dialer{Timeout: 2 * time.Second}
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err == nil {
					_ = conn.Close()
					return
				}
				mu.Lock()
				defer mu.Unlock()
				silent = append(silent, address)
			})
		}
		all.Wait()
		slices.Sort(silent)
		line := fmt.Sprintf("cluster.join %q: %d of %d addresses answer", name, min(len(addresses), maxReach)-len(silent), min(len(addresses), maxReach))
		if len(silent) > 0 {
			line += "; nobody at " + strings.Join(silent[:min(len(silent), 5)], ", ")
			ok = ok && len(silent) < len(addresses)
		}
		lines = append(lines, line)
	}
	return lines, ok
}
