package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// report is the closing comparison.
func (c *comparison) report() string {
	a, b, t := c.roundRobin, c.warmring, c.totals
	var out strings.Builder
	row := func(name, x, y, limit string) {
		line := fmt.Sprintf("%-34s%14s%14s%14s", name, x, y, limit)
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	out.WriteString("\n")
	row("", a.name, b.name, "limit*")
	row("cached share of prompt tokens", percent(a.cached()), percent(b.cached()), percent(t.Ideal()))
	row("prefilled (fresh) tokens", tokens(a.fresh()), tokens(b.fresh()), tokens(t.Fresh))
	for _, p := range []float64{0.5, 0.9, 0.99} {
		row(fmt.Sprintf("time to first token, P%.0f", 100*p), duration(a.percentile(p)), duration(b.percentile(p)), "")
	}
	row("turns on their session's engine", percent(a.loyal()), percent(b.loyal()), "100.0 %")
	row("busiest engine, turns over mean", fmt.Sprintf("%.2f", a.skew()), fmt.Sprintf("%.2f", b.skew()), "1.00")
	row("the whole took", duration(a.took), duration(b.took), "")
	out.WriteString("* what one engine with memory without end would do\n\n")

	most := float64(max(a.fresh(), b.fresh(), t.Fresh, 1))
	for _, x := range []struct {
		name  string
		fresh int64
	}{{a.name, a.fresh()}, {b.name, b.fresh()}, {"limit", t.Fresh}} {
		fmt.Fprintf(&out, "prefill work  %-12s %s %s\n", x.name, strings.TrimRight(bar(float64(x.fresh)/most, 40), "·"), tokens(x.fresh))
	}
	fmt.Fprintf(&out, "\nRound robin computed %.1f× the prefill work of warmring, which computed %.2f×\n", ratio(a.fresh(), b.fresh()), ratio(b.fresh(), t.Fresh))
	fmt.Fprintf(&out, "what no router could avoid. Half of all turns had their first token within\n%s with round robin, within %s with warmring.\n", duration(a.percentile(0.5)), duration(b.percentile(0.5)))
	if c.hops != nil {
		out.WriteString(c.hops.opening())
		c.hops.report(row)
		out.WriteString(c.hops.closing())
	}
	if c.lanes != nil {
		out.WriteString(c.lanes.opening())
		c.lanes.report(row)
		out.WriteString("\n" + c.lanes.closing())
	}
	return out.String()
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// verify looks whether everything was answered and nothing was left behind, and says so in one line.
func (c *comparison) verify(ctx context.Context, s *stage) (string, error) {
	answers := c.roundRobin.done + c.warmring.done
	if c.hops != nil {
		answers += c.hops.score.done
	}
	if c.lanes != nil {
		answers += c.lanes.answers()
	}
	if failed := c.roundRobin.failed + c.warmring.failed; failed > 0 {
		return fmt.Sprintf("Checked: %d of %d requests failed.", failed, answers), errors.Join(c.roundRobin.failures(), c.warmring.failures())
	}
	err := s.idle(ctx)
	for i, st := range s.fleet.stats() {
		if err == nil && st.Running+st.Waiting > 0 {
			err = fmt.Errorf("%s still runs %d requests", s.names[i], st.Running+st.Waiting)
		}
	}
	if err != nil {
		return "Checked: no request failed, but not all is back to 0.", fmt.Errorf("left behind after the run: %w", err)
	}
	return fmt.Sprintf("Checked: all %d requests answered in full, all gauges of the proxy back to 0.", answers), nil
}

// duration with two or three digits.
func duration(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d < 100*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
