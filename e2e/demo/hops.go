package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmring/warmring/e2e/ports"
	"github.com/warmring/warmring/e2e/workload"
)

// hopPhase is the traffic once more, through several proxies: each request goes to one picked by chance, as a balancer would, and one
// of them is cut off in the middle of its answers and starts again.
type hopPhase struct {
	proxies int
	one     *score // of the single proxy, to compare with
	score   *score
	again   int           // requests that were sent again, as their proxy went away
	away    time.Duration // until the one that was cut off was back and known
}

// hopCluster are proxies in one cluster. stages[i] is nil while that one is away.
type hopCluster struct {
	fleet  *fleet
	mu     sync.Mutex
	stages []*stage
}

func playHops(ctx context.Context, w *workload.Workload, set settings, size sizes, one *score, view *view) (h *hopPhase, err error) {
	fleet, err := startFleet(set.engines, size)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	fleet.drain = "1ms" // who is told to end here is cut off
	c := &hopCluster{fleet: fleet, stages: make([]*stage, set.proxies)}
	defer func() { err = errors.Join(err, c.end()) }()
	for i := range c.stages {
		if err := c.start(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := c.whole(ctx); err != nil {
		return nil, err
	}
	h = &hopPhase{proxies: set.proxies, one: one, score: newScore(fmt.Sprintf("%d proxies", set.proxies), fleet)}
	var again atomic.Int64
	way := route{
		next:   func() (string, int) { return c.any().url, -1 },
		engine: func(name string) int { return slices.Index(fleet.names, name) },
		again:  func() bool { return again.Add(1) <= maxAgain },
	}
	playing, over := context.WithCancel(ctx)
	var failure error
	var killer sync.WaitGroup
	killer.Go(func() { h.away, failure = c.restartOne(ctx, playing, h.score) })
	err = play(ctx, w, way, h.score, view)
	over()
	killer.Wait()
	h.again = int(again.Load())
	if err := errors.Join(err, failure, h.score.failures()); err != nil {
		return nil, err
	}
	for i, s := range c.stages {
		if err := s.idle(ctx); err != nil {
			return nil, fmt.Errorf("left behind by proxy %d: %w", i+1, err)
		}
	}
	return h, nil
}

// maxAgain is far more than can be under way at the proxy that is cut off.
const maxAgain = 2000

// restartOne cuts a proxy off when a third of all turns are done, and starts it again. If the traffic ends before, it does nothing.
func (c *hopCluster) restartOne(ctx, playing context.Context, s *score) (away time.Duration, err error) {
	for done := 0.0; done < 1.0/3; done = s.share() {
		if !pause(playing, 10*time.Millisecond) {
			return 0, nil
		}
	}
	began := time.Now()
	c.mu.Lock()
	gone := c.stages[0]
	c.stages[0] = nil // nobody is sent there any more
	c.mu.Unlock()
	if err := gone.stopProxy(); err != nil {
		return 0, err
	}
	pause(playing, 500*time.Millisecond)
	if err := c.start(ctx, 0); err != nil {
		return 0, err
	}
	return time.Since(began), c.whole(ctx)
}

// start starts a proxy that joins those that run, and lets clients use it when it knows what they know.
func (c *hopCluster) start(ctx context.Context, i int) error {
	var join []string
	for _, s := range c.running() {
		v, err := s.cluster(ctx)
		if err != nil {
			return err
		}
		join = append(join, fmt.Sprintf("%q", v.Address))
	}
	var s *stage
	for try := 0; ; try++ { // the port may be taken before the proxy takes it
		port, err := ports.Free()
		if err != nil {
			return err
		}
		c.fleet.settings = fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\nnode = \"proxy-%d\"\njoin = [%s]\n", port, i+1, strings.Join(join, ", "))
		if s, err = startProxy(ctx, c.fleet); err == nil {
			break
		}
		if try == 2 || ctx.Err() != nil {
			return err
		}
	}
	c.mu.Lock()
	c.stages[i] = s
	c.mu.Unlock()
	return nil
}

func (c *hopCluster) running() (list []*stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stages {
		if s != nil {
			list = append(list, s)
		}
	}
	return list
}

// any is a proxy picked by chance.
func (c *hopCluster) any() *stage {
	list := c.running()
	return list[rand.IntN(len(list))]
}

// whole waits until all know each other.
func (c *hopCluster) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		list := c.running()
		for _, s := range list {
			v, err := s.cluster(ctx)
			if err != nil {
				return err
			}
			if !v.Ready || len(v.Members) != len(list)-1 {
				return fmt.Errorf("a proxy knows %d others, not %d", len(v.Members), len(list)-1)
			}
		}
		return nil
	})
}

// end stops all that run.
func (c *hopCluster) end() error {
	var failures []error
	for _, s := range c.running() {
		failures = append(failures, s.stopProxy())
	}
	return errors.Join(failures...)
}

type clusterView struct {
	Address string
	Ready   bool
	Members []struct{}
}

func (s *stage) cluster(ctx context.Context) (v clusterView, err error) {
	body, err := s.ask(ctx, "/api/cluster")
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

// opening tells what is played.
func (h *hopPhase) opening() string {
	text := fmt.Sprintf("\nThe same traffic through %d proxies, any of them for each request.", h.proxies)
	if h.away > 0 {
		text += fmt.Sprintf(" One is cut\noff in the middle of its answers and is back after %s; %d requests that it\nhad broken or refused were sent again:", duration(h.away), h.again)
	}
	return text + "\n\n"
}

// report is the part of the closing table that tells of several proxies.
func (h *hopPhase) report(row func(name, x, y, limit string)) {
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	row("", "one proxy", h.score.name, "")
	row("cached share of prompt tokens", percent(h.one.cached()), percent(h.score.cached()), "")
	row("prefilled (fresh) tokens", tokens(h.one.fresh()), tokens(h.score.fresh()), "")
	row("turns on their session's engine", percent(h.one.loyal()), percent(h.score.loyal()), "")
	for _, p := range []float64{0.5, 0.9} {
		row(fmt.Sprintf("time to first token, P%.0f", 100*p), duration(h.one.percentile(p)), duration(h.score.percentile(p)), "")
	}
}

// closing says it in words, as far as it is true.
func (h *hopPhase) closing() string {
	more := ratio(h.score.fresh(), h.one.fresh())
	text := fmt.Sprintf("\n%d proxies computed %.2f× the prefill work of one", h.proxies, more)
	switch {
	case more > 1.15:
	case h.away > 0:
		text += ": whichever proxy gets a turn\nknows where its session is warm, and so does the one that came back, as the\nothers told it"
	default:
		text += ": whichever proxy gets a turn\nknows where its session is warm"
	}
	return text + ".\n"
}
