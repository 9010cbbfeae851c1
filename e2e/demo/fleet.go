package demo

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/warmring/warmring/engines/sim"
)

const modelName = "sim"

// fleet is a set of simulated engines with empty caches, each on its own loopback port.
type fleet struct {
	names    []string
	servers  []*sim.Server
	settings string // more of the proxy's configuration
	drain    string // how long a proxy that ends waits for its requests; "" = 2 s
}

// maxBatch bounds a step, so that others' tokens come between the chunks of a long prefill.
const maxBatch = 2048

func startFleet(n int, size sizes) (*fleet, error) {
	f := &fleet{}
	for i := range n {
		s, err := sim.Start(sim.ServerOptions{
			Options: sim.Options{
				KVTokens: size.kv, MaxModelLen: size.kv, MaxBatchedTokens: cmp.Or(size.batch, maxBatch),
				Cost: sim.Cost{Base: 0.008, Prefill: 1 / size.rate, Decode: 0.0002},
			},
			Models: []string{modelName},
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.servers = append(f.servers, s)
		f.names = append(f.names, fmt.Sprintf("engine-%d", i+1))
	}
	return f, nil
}

func (f *fleet) close() {
	for _, s := range f.servers {
		s.Close()
	}
}

// stats are the engines' own counters.
func (f *fleet) stats() []sim.Stats {
	all := make([]sim.Stats, len(f.servers))
	for i, s := range f.servers {
		all[i] = s.Engine().Stats()
	}
	return all
}

// route is where turns are sent.
type route struct {
	// next is the base URL for the next request and the engine behind it; -1: the answer's header tells.
	next   func() (url string, engine int)
	engine func(name string) int

	// again tells whether a request that failed is to be sent once more, to wherever next says, as agents do; nil = never.
	again func() bool
}

// roundRobin deals requests out in turn, straight to the engines: no proxy stands in the way, which is in its favour.
func (f *fleet) roundRobin() route {
	var n atomic.Uint64
	return route{next: func() (string, int) {
		i := int((n.Add(1) - 1) % uint64(len(f.servers)))
		return f.servers[i].URL(), i
	}}
}
