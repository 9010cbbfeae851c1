package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/warmring/warmring/e2e"
	"github.com/warmring/warmring/engines/sim"
)

// lanes sends long cold prompts back to back beside sessions with short warm turns through warmring, with its lanes off,
// with lanes that only hold back, and with lanes, in front of simulated engines and of each real one that is installed.
func (b *bench) lanes() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	binary, err := e2e.Build(ctx, b.dir, false)
	if err != nil {
		return err
	}
	t := table{title: "Lanes: long cold prompts back to back; five sessions take short warm turns: P50, P99 to the first token"}
	t.row("engine", "lanes", "alone", "P50", "P99", "turn P50", "turns", "longs", "took", "/off", "back")
	for _, target := range laneTargets(b.dir) {
		if err := b.laneTarget(ctx, &t, binary, target); errors.Is(err, e2e.ErrAbsent) {
			fmt.Fprintf(os.Stderr, "bench: lanes: %s is left out: %v\n", target.name, err)
		} else if err != nil {
			return fmt.Errorf("%s: %w", target.name, err)
		}
	}
	t.write(b.report.out)
	return nil
}

// laneTarget is an engine to put lanes in front of.
type laneTarget struct {
	name    string
	start   func(ctx context.Context) (e *e2e.Engine, stop func(), err error)
	traffic e2e.LaneTraffic
}

func laneTargets(logs string) []laneTarget {
	real := func(start func(ctx context.Context) (*e2e.Engine, error)) func(ctx context.Context) (*e2e.Engine, func(), error) {
		return func(ctx context.Context) (*e2e.Engine, func(), error) {
			e, err := start(ctx)
			if err != nil {
				return nil, nil, err
			}
			return e, e.Stop, nil
		}
	}
	return []laneTarget{
		{"sim vllm", simulated(sim.VLLM), e2e.LaneTraffic{Longs: 5, Tokens: 24000, Every: 2 * time.Second}},
		{"sim sglang", simulated(sim.SGLang), e2e.LaneTraffic{Longs: 5, Tokens: 24000, Every: 2 * time.Second}},
		{"vllm", real(func(ctx context.Context) (*e2e.Engine, error) {
			return e2e.StartVLLM(ctx, e2e.VLLM{Name: "vllm", Core: 1, Logs: logs})
		}), e2e.LaneTraffic{Longs: 4, Tokens: 24000, Every: 2 * time.Second}},
		{"sglang", real(func(ctx context.Context) (*e2e.Engine, error) {
			return e2e.StartSGLang(ctx, e2e.SGLang{Name: "sglang", Core: 1, Logs: logs})
		}), e2e.LaneTraffic{Longs: 2, Tokens: 24000, Every: 2 * time.Second}},
		{"llama.cpp", real(func(ctx context.Context) (*e2e.Engine, error) {
			return e2e.StartLlamaCPP(ctx, e2e.LlamaCPP{Name: "llamacpp", Slots: 8, Logs: logs})
		}), e2e.LaneTraffic{Longs: 2, Tokens: 16000, Every: 2 * time.Second}},
	}
}

// simulated is an engine that prefills 10,000 fresh tokens a second, less with context, in steps of 1,024.
func simulated(mode sim.Mode) func(ctx context.Context) (*e2e.Engine, func(), error) {
	return func(context.Context) (*e2e.Engine, func(), error) {
		s, err := sim.Start(sim.ServerOptions{Options: sim.Options{Mode: mode, MaxBatchedTokens: 1024}})
		if err != nil {
			return nil, nil, err
		}
		return &e2e.Engine{URL: s.URL(), Model: "sim", Kind: mode.String()}, func() { s.Close() }, nil
	}
}

func (b *bench) laneTarget(ctx context.Context, t *table, binary string, target laneTarget) error {
	engine, stop, err := target.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var off time.Duration
	for _, v := range e2e.LaneVariants() {
		w, err := e2e.StartWarmring(ctx, e2e.Proxy{Binary: binary, Settings: v.Settings, Logs: b.dir, Engines: map[string]string{"a": engine.EngineLines() + v.Engine}})
		if err != nil {
			return err
		}
		traffic := target.traffic
		traffic.Base, traffic.Model, traffic.Salt = w.URL, engine.Model, fmt.Sprint(v.Name, " ", time.Now().UnixNano())
		traffic.AtOnce, traffic.Sessions, traffic.History = 2, 5, 1500
		run, err := traffic.Run(ctx)
		if err == nil {
			err = w.Idle(ctx, 2*time.Second)
		}
		w.Stop()
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if off == 0 {
			off = run.Took
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
		alone, whole := e2e.Quantile(run.Alone, 0.5), e2e.Quantile(run.Whole, 0.5)
		t.row(target.name, v.Name, ms(alone), ms(run.ShortAt(0.5)), ms(run.ShortAt(0.99)), ms(whole), fmt.Sprint(len(run.Short)),
			fmt.Sprintf("%d × %d", len(run.Long), run.Tokens), fmt.Sprintf("%.1f s", run.Took.Seconds()), fmt.Sprintf("%.2f", run.Took.Seconds()/off.Seconds()), fmt.Sprint(run.Preempted))
		b.report.line(map[string]any{"scenario": "lanes", "engine": target.name, "lanes": v.Name, "alone_ms": alone.Milliseconds(), "short_p50_ms": run.ShortAt(0.5).Milliseconds(),
			"short_p99_ms": run.ShortAt(0.99).Milliseconds(), "whole_p50_ms": whole.Milliseconds(), "turns": len(run.Short), "longs": len(run.Long), "tokens": run.Tokens, "seconds": run.Took.Seconds(), "preempted": run.Preempted, "slices": run.Slices})
	}
	return nil
}
