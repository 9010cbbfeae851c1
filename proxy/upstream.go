package proxy

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring/prompt"
)

// upstream is an engine as the operator describes it, with what this proxy has to do with it. A reload that describes it in
// another way makes a new upstream with the same contact; requests under way keep the one that they were placed with.
type upstream struct {
	*engines.Engine
	*contact
	extraHead []byte
	preempt   string  // the operator's word: auto, yes or no
	sending   sending // to it, where closing the connection is enough to stop
}

// contact is what this proxy has with an engine and learned of it: connections, requests in its lanes, ways to stop. It
// lasts as long as the engine is in the configuration.
type contact struct {
	pool     *engines.Pool
	finishes [prompt.Responses + 1]atomic.Bool // by family: it has ended a stream with the final event before
	lanes    *engineLanes
	kept     keptShare
	caches   atomic.Bool // an answer has told of cached tokens
	noAbort  atomic.Bool // an SGLang that refuses /abort_request: it is only held back
	metrics  *engineMetrics
}

// newUpstream describes e as c does, with a contact that it has already or, for nil, a new one.
func (s *Server) newUpstream(e *engines.Engine, c *config.Engine, with *contact, set *settings) *upstream {
	up := &upstream{Engine: e, contact: with, preempt: c.Preempt}
	if with == nil {
		up.contact = &contact{
			pool: engines.NewPool(e.Target, engines.PoolOptions{
				MaxIdle: e.MaxIdle, ConnectTimeout: set.Timeouts.Connect.Std(), TLS: e.TLSConfig(), OnStale: e.LookSoon,
			}),
			lanes: newEngineLanes(laneOptions(&set.Lanes), s.now),
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		up.extraHead = fmt.Appendf(up.extraHead, "%s: %s\r\n", name, e.Headers[name])
	}
	up.sending.up = up
	return up
}

// end takes no new work from now on: what is held moves to other engines, streams go on, connections close as they come free.
func (c *contact) end() {
	c.lanes.retire()
	c.pool.Close()
}

// upstreams are the engines of the present configuration by name; not to be changed.
func (s *Server) upstreams() map[string]*upstream { return *s.contacts.Load() }

func laneOptions(c *config.Lanes) lane.Options {
	return lane.Options{
		Target: c.Target.Std(), Border: c.Border, Budget: c.Budget, Share: c.Share, MaxExtraDelay: c.MaxExtraDelay.Std(), MaxHeld: c.MaxHeld,
		MaxHeldBytes: int64(c.MaxHeldBytes), MaxWaiting: c.MaxWaiting, MaxWait: c.MaxWait.Std(), NoSlices: !c.Slices, Off: c.Off,
	}
}
