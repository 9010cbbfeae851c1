package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/warmring/warmring/e2e/workload"
)

// Run is the demo command. It returns the exit status: 0 when all went well, 1 on a failure or when ctx ended it early, 2
// for a wrong call. All that it starts has ended when it returns.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, status, done := parseFlags(args, stderr)
	if done {
		return status
	}
	err := error(nil)
	if set.alone != "" {
		err = runEngine(ctx, set.alone, stdout)
	} else {
		_, err = run(ctx, set, stdout)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "warmring demo: interrupted")
	default:
		fmt.Fprintln(stderr, "warmring demo:", err)
	}
	return 1
}

// settings is what a demo is made of.
type settings struct {
	alone   string // address of a single engine; "" plays the demo
	engines int
	proxies int // more than 1: the traffic once more, through so many
	keep    bool
	plain   bool
	spec    workload.Spec

	// liveShare is the part of the fleet's KV that the sessions need in the end: less than 1, so that there is room for
	// all when each is kept in one place, but far too little when each is everywhere.
	liveShare float64

	// toCompute is how long the fleet should take to prefill what round robin makes it compute: the engines' speed
	// follows from it.
	toCompute time.Duration

	// longTokens and shortTurns make the second part, about lanes: the size of a long prompt, and how many turns each
	// session takes.
	longTokens, shortTurns int
}

// comparison is what a demo comes to.
type comparison struct {
	roundRobin, warmring *score
	totals               workload.Totals
	hops                 *hopPhase
	lanes                *lanePhase
}

// run plays the traffic twice and compares.
func run(ctx context.Context, set settings, stdout io.Writer) (c *comparison, err error) {
	w := set.spec.Write()
	size := measure(w, set)
	view := newView(stdout, set.plain, set.engines)
	fmt.Fprint(stdout, opening(w, set, size))

	c = &comparison{totals: size.totals}
	if c.roundRobin, err = playRoundRobin(ctx, w, set, size, view); err != nil {
		return nil, fmt.Errorf("through round robin: %w", err)
	}
	var stage *stage
	c.warmring, stage, err = playWarmring(ctx, w, set, size, view)
	if stage != nil {
		defer func() { err = errors.Join(err, stage.close()) }()
	}
	if err != nil {
		return nil, fmt.Errorf("through warmring: %w", err)
	}
	if set.proxies > 1 {
		if c.hops, err = playHops(ctx, w, set, size, c.warmring, view); err != nil {
			return nil, fmt.Errorf("through %d proxies: %w", set.proxies, err)
		}
	}
	if c.lanes, err = playLanes(ctx, set, view); err != nil {
		return nil, fmt.Errorf("long prompts: %w", err)
	}
	fmt.Fprint(stdout, c.report())
	verdict, err := c.verify(ctx, stage)
	fmt.Fprintln(stdout, verdict)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(stdout, next)
	if set.keep {
		fmt.Fprint(stdout, stage.invitation())
		<-ctx.Done()
		fmt.Fprintln(stdout, "\nEnding.")
	}
	return c, nil
}

func playRoundRobin(ctx context.Context, w *workload.Workload, set settings, size sizes, view *view) (*score, error) {
	fleet, err := startFleet(set.engines, size)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	s := newScore("round robin", fleet)
	return s, play(ctx, w, fleet.roundRobin(), s, view)
}

// playWarmring leaves the engines and the proxy running, for the checks and for -keep; the caller closes the stage.
func playWarmring(ctx context.Context, w *workload.Workload, set settings, size sizes, view *view) (*score, *stage, error) {
	fleet, err := startFleet(set.engines, size)
	if err != nil {
		return nil, nil, err
	}
	stage, err := startProxy(ctx, fleet)
	if err != nil {
		fleet.close()
		return nil, nil, err
	}
	s := newScore("warmring", fleet)
	return s, stage, play(ctx, w, stage.route(), s, view)
}

// sizes are what the engines are given so that the traffic is tight on them.
type sizes struct {
	totals workload.Totals
	kv     int     // tokens of KV cache per engine
	rate   float64 // fresh tokens per second and engine
	batch  int     // tokens a step; 0 = maxBatch
}

func measure(w *workload.Workload, set settings) sizes {
	t := w.Totals()
	n := float64(set.engines)
	perEngine := float64(t.Fresh) / set.liveShare / n
	// With round robin every engine comes to compute nearly all there is, each part of it once and some twice. This
	// serves only to choose a speed at which the demo takes a bearable time.
	expected := min(1.1*n*float64(t.Fresh), 0.8*float64(t.Prompt))
	return sizes{
		totals: t,
		kv:     roundUp(max(int(perEngine), t.Largest*3/2), 1024),
		rate:   float64(roundUp(int(expected/n/set.toCompute.Seconds()), 1000)),
	}
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func opening(w *workload.Workload, set settings, size sizes) string {
	children := 0
	for _, s := range w.Sessions {
		if s.Parent != nil {
			children++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d agents with %d forks and sub-agents, %d turns, %s prompt tokens.\n", len(w.Sessions)-children, children, size.totals.Requests, tokens(size.totals.Prompt))
	fmt.Fprintf(&b, "%d simulated engines that prefill %s tokens a second, each with %s\ntokens of KV cache", set.engines, tokens(int64(size.rate)), tokens(int64(size.kv)))
	if int64(size.kv) < size.totals.Fresh {
		b.WriteString(": together they can hold all sessions, one alone cannot")
	}
	b.WriteString(".\n\n")
	return b.String()
}

const next = `
To put it in front of your own engines, write warmring.toml

    listen = "127.0.0.1:8080"

    [[engine]]
    url = "http://127.0.0.1:8000"

    [[engine]]
    url = "http://127.0.0.1:8001"

run "warmring check -probe" and "warmring serve", and set your agent's base
URL to http://127.0.0.1:8080/v1 (for Anthropic clients without the /v1).
`
