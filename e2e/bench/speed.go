package main

import (
	"fmt"
	"os"
	"time"
)

// measure is one kind of run of the speed scenario.
type measure struct {
	name   string // in tables
	load   load
	pace   int  // ms between a stream's 20 events
	memory bool // the peak of the memory is what counts
}

// speedMeasures are what each peer is measured by, in each round.
func speedMeasures(scale float64) []measure {
	n := func(total int) int { return max(16, int(float64(total)*scale)) }
	limit := 15 * time.Second
	return []measure{
		{name: "2 KB", load: load{body: "2 KB", conns: 16, total: n(15000), limit: limit}},
		{name: "220 KB", load: load{body: "220 KB", conns: 16, total: n(3000), limit: limit}},
		{name: "450 KB", load: load{body: "450 KB", conns: 16, total: n(1500), limit: limit}},
		{name: "paced", load: load{body: "2 KB", stream: true, conns: 16, total: n(1200), limit: limit}, pace: 2},
		{name: "2 KB C1", load: load{body: "2 KB", conns: 1, total: n(1500), limit: limit}},
		{name: "220 KB C1", load: load{body: "220 KB", conns: 1, total: n(800), limit: limit}},
		{name: "220 KB C64", load: load{body: "220 KB", conns: 64, total: n(2000), limit: limit}, memory: true},
	}
}

// stall is how long an answer may take before its run is left out of the figures; no peer takes that long by itself.
const stall = 3 * time.Second

// figures are a peer's results by measure.
type figures struct {
	cpu        map[string]spread // seconds per 1000 requests
	p50, p99   map[string]spread // ms
	addP50     map[string]spread // ms more than direct in the same round
	addP99     map[string]spread
	rate       map[string]spread // requests per second
	peak       spread            // MB
	errors     int
	stalled    int // runs that do not count
	firstError string
	requests   int
}

func newFigures() *figures {
	return &figures{cpu: map[string]spread{}, p50: map[string]spread{}, p99: map[string]spread{}, addP50: map[string]spread{}, addP99: map[string]spread{}, rate: map[string]spread{}}
}

// speed measures CPU, latency and memory of peers side by side: all run at once, one at a time is driven, and they take
// turns over the rounds, so that what else the machine does hits all alike.
func (b *bench) speed() error {
	s, err := b.stage("speed")
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startFakes(2); err != nil {
		return err
	}
	peers := []*up{{peer: peer{name: "direct"}, address: s.fakes[0]}}
	peers = append(peers, b.startPeers(s)...)
	if len(peers) == 1 {
		return fmt.Errorf("no peer could be started")
	}
	results := map[string]*figures{}
	for _, p := range peers {
		results[p.name] = newFigures()
	}
	for _, p := range peers { // paths, pools and learned rates get warm
		l := load{address: p.address, body: "220 KB", headers: true, conns: 16, total: 640, limit: 5 * time.Second}
		if p.slow {
			l.total = 32
		}
		l.run(&b.sets)
	}
	for round := range b.rounds {
		order := append(append([]*up{}, peers[0]), rotate(peers[1:], round)...)
		for _, m := range speedMeasures(b.scale) {
			var direct outcome
			for _, p := range order {
				o := b.measure(s, p, m, round, results[p.name], direct)
				if p.process == nil {
					direct = o
				}
			}
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d done\n", round+1, b.rounds)
	}
	b.speedTables(peers, results)
	return nil
}

func rotate(list []*up, by int) []*up {
	by %= len(list)
	return append(append([]*up{}, list[by:]...), list[:by]...)
}

// measure does one run and enters it into the peer's figures.
func (b *bench) measure(s *stage, p *up, m measure, round int, f *figures, direct outcome) outcome {
	l := m.load
	l.address, l.headers = p.address, true
	if p.slow {
		l.total = max(16, l.total/50)
	}
	s.tell(fmt.Sprintf("set?pace=%d", m.pace))
	var before usage
	if p.process != nil {
		forgetPeak(p.pid())
		before = usageOf(p.pid())
	}
	o := l.run(&b.sets)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p50, p99 := ms(quantile(o.latencies, 0.5)), ms(quantile(o.latencies, 0.99))
	line := map[string]any{"scenario": "speed", "peer": p.name, "measure": m.name, "round": round, "requests": o.good, "errors": o.errors, "seconds": o.took.Seconds(), "p50_ms": p50, "p99_ms": p99, "load_average": loadAverage()}
	f.requests += o.good
	f.errors += o.errors
	if f.firstError == "" {
		f.firstError = o.firstError
	}
	if quantile(o.latencies, 1) > stall {
		// Another program had the proxy's core for seconds: that tells nothing of the proxy.
		f.stalled++
		line["stalled"] = true
	} else if o.good > 0 {
		f.p50[m.name] = append(f.p50[m.name], p50)
		f.p99[m.name] = append(f.p99[m.name], p99)
		f.rate[m.name] = append(f.rate[m.name], float64(o.good)/o.took.Seconds())
		if p.process != nil {
			time.Sleep(20 * time.Millisecond) // the kernel's counters lag by a tick
			after := usageOf(p.pid())
			cpu := (after.cpu - before.cpu) * 1000 / float64(o.good)
			f.cpu[m.name] = append(f.cpu[m.name], cpu)
			line["cpu_per_1000"], line["peak_bytes"] = cpu, after.peak
			if m.memory {
				f.peak = append(f.peak, float64(after.peak)/1e6)
			}
			f.addP50[m.name] = append(f.addP50[m.name], p50-ms(quantile(direct.latencies, 0.5)))
			f.addP99[m.name] = append(f.addP99[m.name], p99-ms(quantile(direct.latencies, 0.99)))
		}
	}
	b.report.line(line)
	return o
}

func (b *bench) speedTables(peers []*up, results map[string]*figures) {
	nginx := results["nginx"]
	for _, names := range [][]string{{"2 KB", "220 KB"}, {"450 KB", "paced"}} {
		t := table{title: fmt.Sprintf("CPU seconds of the proxy per 1000 requests, 16 connections; median (least–most), %d rounds", b.rounds)}
		head := []string{"peer"}
		for _, n := range names {
			head = append(head, n, "/nginx")
		}
		t.row(head...)
		for _, p := range peers[1:] {
			cells := []string{p.name}
			for _, n := range names {
				ratio := "–"
				if nginx != nil && len(nginx.cpu[n]) > 0 && len(results[p.name].cpu[n]) > 0 {
					ratio = fmt.Sprintf("%.2f", results[p.name].cpu[n].median()/nginx.cpu[n].median())
				}
				cells = append(cells, results[p.name].cpu[n].String(), ratio)
			}
			t.row(cells...)
		}
		t.write(b.report.out)
	}
	t := table{title: "Latency with 1 connection, ms: P50, what it adds to direct (+), best P99; medians of rounds"}
	t.row("peer", "2 KB P50", "+P50", "+P99", "best P99", "220 KB P50", "+P50", "+P99", "best P99")
	for _, p := range peers {
		f, cells := results[p.name], []string{p.name}
		for _, n := range []string{"2 KB C1", "220 KB C1"} {
			if len(f.p50[n]) == 0 {
				cells = append(cells, "–", "–", "–", "–")
				continue
			}
			add50, add99 := "", ""
			if p.process != nil {
				add50, add99 = fmt.Sprintf("%.3f", f.addP50[n].median()), fmt.Sprintf("%.3f", f.addP99[n].median())
			}
			cells = append(cells, short(f.p50[n].median()), add50, add99, short(f.p99[n].least()))
		}
		t.row(cells...)
	}
	t.write(b.report.out)
	t = table{title: "Requests per second, 16 connections; peak memory under 64 connections of 220 KB turns"}
	t.row("peer", "2 KB", "220 KB", "450 KB", "peak MB", "requests", "errors", "stalls")
	for _, p := range peers {
		f := results[p.name]
		peak := "–"
		if len(f.peak) > 0 {
			peak = f.peak.String()
		}
		t.row(p.name, short(f.rate["2 KB"].median()), short(f.rate["220 KB"].median()), short(f.rate["450 KB"].median()), peak, fmt.Sprint(f.requests), fmt.Sprint(f.errors), fmt.Sprint(f.stalled))
	}
	t.write(b.report.out)
	for _, p := range peers {
		if f := results[p.name]; f.errors > 0 {
			fmt.Fprintf(b.report.out, "%s: first error: %.80s\n", p.name, f.firstError)
		}
	}
}
