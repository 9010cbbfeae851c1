package gossip

import (
	"net"
	"slices"
	"sync"
)

const (
	maxSilent  = 256 // streams that have not said what they are: some 6 KB each
	maxStreams = 16  // streams that have: up to maxStream each
)

// places are the streams that others have opened and hold open. Anybody can open one and say nothing; if these took the places of those that
// speak, a stranger without the key would keep every joiner out.
type places struct {
	mu              sync.Mutex
	silent, talking []*countedConn // by arrival
}

// enter takes a new stream in, and returns one to be cut for it, or nil: the oldest silent one of the address that has the most.
func (p *places) enter(c *countedConn) (out *countedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.silent) >= maxSilent {
		i, _ := busiest(p.silent)
		out = p.silent[i]
		p.silent = slices.Delete(p.silent, i, i+1)
	}
	p.silent = append(p.silent, c)
	return out
}

// speak gives a stream that has said what it is one of the few places of those, unless it has been cut, or all are taken: then the oldest of
// the address that has the most goes, if that has more than this one's with it. It is returned to be cut.
func (p *places) speak(c *countedConn) (ok bool, out *countedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !drop(&p.silent, c) {
		return false, nil
	}
	if len(p.talking) >= maxStreams {
		own := 1
		for _, t := range p.talking {
			if t.source == c.source {
				own++
			}
		}
		i, most := busiest(p.talking)
		if most <= own {
			return false, nil
		}
		out = p.talking[i]
		p.talking = slices.Delete(p.talking, i, i+1)
	}
	p.talking = append(p.talking, c)
	return true, out
}

// leave frees the place of a stream, if it has one.
func (p *places) leave(c *countedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !drop(&p.silent, c) {
		drop(&p.talking, c)
	}
}

func drop(list *[]*countedConn, c *countedConn) bool {
	i := slices.Index(*list, c)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

// busiest is the oldest stream of the address that has the most, and how many that has.
func busiest(list []*countedConn) (oldest, most int) {
	count := make(map[string]int, len(list))
	for _, c := range list {
		count[c.source]++
	}
	for i, c := range list {
		if count[c.source] > most {
			oldest, most = i, count[c.source]
		}
	}
	return oldest, most
}

// sourceOf is what streams of one host have in common: its IPv4 address, or the network of its IPv6 address, all of which may be its own.
func sourceOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
