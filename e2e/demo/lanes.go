package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/warmring/warmring/e2e/workload"
)

// lanePhase is the demo's second part: one engine that gets long cold prompts one after the other, and sessions that take
// short warm turns meanwhile, once with lanes switched off and once with them.
type lanePhase struct {
	longs   int
	tokens  int // of each long prompt
	off, on laneScores
}

// laneScores are one run's, of both kinds of traffic.
type laneScores struct{ short, long *score }

const (
	laneRate  = 16_000 // fresh tokens per second
	laneBatch = 1_024  // tokens a step
)

// laneTraffic are the long prompts and the short turns.
func laneTraffic(set settings) (long, short *workload.Workload) {
	one := []workload.Client{workload.Clients()[0]}
	huge := set.longTokens
	spec := workload.Spec{Seed: set.spec.Seed, Salt: "long ", Model: modelName, Clients: one, Sessions: 3, Forks: -1, SubAgents: -1, Long: -1,
		Turns: workload.Range{Min: 1, Max: 1}, Head: workload.Range{Min: 50, Max: 60}, First: workload.Range{Min: huge, Max: huge}, Begin: workload.Span{Min: 300 * time.Millisecond, Max: 310 * time.Millisecond}}
	long = spec.Write()
	spec.Salt, spec.Sessions, spec.Begin = "short ", 6, workload.Span{Max: 200 * time.Millisecond}
	spec.Turns, spec.First, spec.More = workload.Range{Min: set.shortTurns, Max: set.shortTurns}, workload.Range{Min: 800, Max: 1200}, workload.Range{Min: 40, Max: 80}
	spec.Tool = workload.Span{Min: 150 * time.Millisecond, Max: 350 * time.Millisecond}
	spec.Human = spec.Tool
	return long, spec.Write()
}

// playLanes plays both runs at the same time, each before an engine of its own: they take as long as the longer one.
func playLanes(ctx context.Context, set settings, view *view) (*lanePhase, error) {
	long, short := laneTraffic(set)
	p := &lanePhase{longs: len(long.Sessions), tokens: long.Sessions[0].Tokens(0)}
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() {
		silent := newView(io.Discard, true, 1)
		p.off, failed[0] = playLane(ctx, "lanes off", "[lanes]\noff = true\n", long, short, silent)
	})
	both.Go(func() { p.on, failed[1] = playLane(ctx, "lanes on", "", long, short, view) })
	both.Wait()
	return p, errors.Join(failed[:]...)
}

func playLane(ctx context.Context, name, settings string, long, short *workload.Workload, shown *view) (s laneScores, err error) {
	fleet, err := startFleet(1, sizes{kv: 1 << 18, rate: laneRate, batch: laneBatch})
	if err != nil {
		return s, err
	}
	fleet.settings = settings
	stage, err := startProxy(ctx, fleet)
	if err != nil {
		fleet.close()
		return s, err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	s = laneScores{short: newScore(name, fleet), long: newScore(name, fleet)}
	var longErr error
	var both sync.WaitGroup
	both.Go(func() { longErr = play(ctx, long, stage.route(), s.long, newView(io.Discard, true, 1)) })
	err = play(ctx, short, stage.route(), s.short, shown)
	both.Wait()
	if err = errors.Join(err, longErr); err != nil {
		return s, fmt.Errorf("with %s: %w", name, err)
	}
	if err := errors.Join(s.short.failures(), s.long.failures()); err != nil {
		return s, err
	}
	if err := stage.idle(ctx); err != nil {
		return s, fmt.Errorf("left behind with %s: %w", name, err)
	}
	return s, nil
}

// report is the part of the closing table that tells of lanes.
func (p *lanePhase) report(row func(name, x, y, limit string)) {
	off, on := p.off, p.on
	row("", off.short.name, on.short.name, "")
	for _, q := range []float64{0.5, 0.9, 0.99} {
		row(fmt.Sprintf("short turns' first token, P%.0f", 100*q), duration(off.short.percentile(q)), duration(on.short.percentile(q)), "")
	}
	row("the long prompts took", duration(off.long.took), duration(on.long.took), "")
}

// opening tells what is played.
func (p *lanePhase) opening() string {
	return fmt.Sprintf("\n%d cold prompts of %s tokens come at once to one engine, which prefills\n%s a second; %d sessions take short turns meanwhile:\n\n",
		p.longs, tokens(int64(p.tokens)), tokens(laneRate), p.off.short.sessions)
}

func (p *lanePhase) answers() int {
	return p.off.short.done + p.on.short.done + p.off.long.done + p.on.long.done
}

// closing sums the table up in a sentence.
func (p *lanePhase) closing() string {
	var b strings.Builder
	off, on := p.off.short.percentile(0.99), p.on.short.percentile(0.99)
	fmt.Fprintf(&b, "One in a hundred short turns waited %s behind long prompts without lanes,\n%s with them; the long ones took %.2f× as long.\n",
		duration(off), duration(on), p.on.long.took.Seconds()/max(p.off.long.took.Seconds(), 1e-3))
	return b.String()
}
