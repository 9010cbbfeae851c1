package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/warmring/warmring/e2e/workload"
)

// report is the closing comparison.
func report(a, b *score, t workload.Totals) string {
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
	fmt.Fprintf(&out, "\nRound robin computed %.1f× the prefill work of warmring, which computed %.2f× what\nno router could avoid. ", ratio(a.fresh(), b.fresh()), ratio(b.fresh(), t.Fresh))
	fmt.Fprintf(&out, "The median agent waited %s for its first token with\nround robin, %s with warmring.\n", duration(a.percentile(0.5)), duration(b.percentile(0.5)))
	return out.String()
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// verify looks whether everything was answered and nothing was left behind, and says so in one line.
func verify(ctx context.Context, s *stage, scores ...*score) (string, bool) {
	answers, failed := 0, 0
	for _, score := range scores {
		answers += score.done
		failed += score.failed
	}
	left := s.idle(ctx)
	for i, st := range s.fleet.stats() {
		if left == nil && st.Running+st.Waiting > 0 {
			left = fmt.Errorf("%s still runs %d requests", s.names[i], st.Running+st.Waiting)
		}
	}
	switch {
	case failed > 0:
		return fmt.Sprintf("Checked: %d of %d requests failed.", failed, answers), false
	case left != nil:
		return fmt.Sprintf("Checked: no request failed, but not all is back to 0: %s.", strings.ReplaceAll(left.Error(), "\n", ", ")), false
	}
	return fmt.Sprintf("Checked: all %d requests were answered in full, all gauges of the proxy are back to 0.", answers), true
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
