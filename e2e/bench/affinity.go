package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// affinity runs 64 growing sessions with one system prompt, once with their ids in headers and once without any, over
// two and eight engines, each time with a freshly started peer. A session stays if turns 2 to 10 go where turn 1 went.
func (b *bench) affinity() error {
	t := table{title: fmt.Sprintf("Affinity: %d sessions × %d turns (55 → 235 KB), one system prompt, 16 at once, 20 ms a turn", sessions, turns)}
	t.row("peer", "engines", "ids", "stay", "load max/mean", "in bytes", "sessions by engine", "errors")
	for _, engines := range []int{2, 8} {
		for _, headers := range []bool{false, true} {
			for _, p := range b.peers {
				if p.slow {
					continue
				}
				if err := b.affinityRun(&t, p, engines, headers); err != nil {
					fmt.Fprintf(os.Stderr, "bench: affinity: %s: %v\n", p.name, err)
				}
			}
		}
	}
	t.write(b.report.out)
	return nil
}

func (b *bench) affinityRun(t *table, p peer, engines int, headers bool) error {
	s, err := b.stage(fmt.Sprintf("affinity-%s-%d-%v", p.name, engines, headers))
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startFakes(engines); err != nil {
		return err
	}
	u, err := s.startPeer(p)
	if err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // routers that know their engines one by one know all by then
	s.tell("set?hold=20&cache=1")
	l := load{address: u.address, body: "grow", headers: headers, conns: 16, once: true, limit: time.Minute}
	o := l.run(&b.sets)
	a := judge(o.visits, engines)
	reasons := decisions(u.extra)
	ids := "none"
	if headers {
		ids = "header"
	}
	t.row(p.name, fmt.Sprint(engines), ids, fmt.Sprintf("%.1f %%", 100*a.stay), fmt.Sprintf("%.2f", a.requests), fmt.Sprintf("%.2f", a.bytes), joined(a.sessions), fmt.Sprint(o.errors))
	b.report.line(map[string]any{"scenario": "affinity", "peer": p.name, "engines": engines, "ids": ids, "stay": a.stay, "requests_max_mean": a.requests, "bytes_max_mean": a.bytes, "sessions": a.sessions, "left": a.left, "decisions": reasons, "requests": o.good, "errors": o.errors, "seconds": o.took.Seconds()})
	return nil
}

// verdict is what became of the sessions.
type verdict struct {
	stay            float64  // share of later turns that went where their session's first went
	requests, bytes float64  // the busiest engine against the mean
	sessions        []int    // first turns by engine
	left            []string // sessions that did not stay, and the engines of their turns
}

func judge(visits map[string][]visit, engines int) verdict {
	v := verdict{sessions: make([]int, engines)}
	requests, bytes := make([]float64, engines), make([]float64, engines)
	stayed, later := 0, 0
	for session, list := range visits {
		if slices.ContainsFunc(list, func(at visit) bool { return at.engine != list[0].engine }) && len(v.left) < 10 {
			v.left = append(v.left, session+":"+route(list))
		}
		for i, at := range list {
			if at.engine < 0 || at.engine >= engines {
				continue // the peer's answer does not say
			}
			requests[at.engine]++
			bytes[at.engine] += float64(at.bytes)
			if i == 0 {
				v.sessions[at.engine]++
				continue
			}
			later++
			if at.engine == list[0].engine {
				stayed++
			}
		}
	}
	if later > 0 {
		v.stay = float64(stayed) / float64(later)
	}
	v.requests, v.bytes = maxOverMean(requests), maxOverMean(bytes)
	return v
}

// route is the engines of a session's turns.
func route(list []visit) string {
	engines := make([]int, len(list))
	for i, at := range list {
		engines[i] = at.engine
	}
	return joined(engines)
}

// decisions counts warmring's placements by reason; other peers tell nothing.
func decisions(admin string) map[string]int {
	page, err := get(admin + "/metrics")
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, `warmring_decisions_total{reason="`); ok {
			if reason, value, ok := strings.Cut(strings.TrimSpace(rest), `"} `); ok && value != "0" {
				counts[reason], _ = strconv.Atoi(value)
			}
		}
	}
	return counts
}

func maxOverMean(list []float64) float64 {
	sum, most := 0.0, 0.0
	for _, x := range list {
		sum += x
		most = max(most, x)
	}
	if sum == 0 {
		return 0
	}
	return most * float64(len(list)) / sum
}

func joined(list []int) string {
	text := ""
	for i, n := range list {
		if i > 0 {
			text += "/"
		}
		text += fmt.Sprint(n)
	}
	return text
}
