package demo

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// view shows a score while it grows: a table that is redrawn in place on a terminal, a line now and then elsewhere.
type view struct {
	out   io.Writer
	live  bool
	drawn int // lines on the screen that the next drawing replaces
}

const (
	liveEvery  = 200 * time.Millisecond
	plainEvery = 3 * time.Second
	tableWidth = 79 // fits terminals of 80 columns
	tableExtra = 3  // lines beside the engines'
)

func newView(out io.Writer, plain bool, engines int) *view {
	return &view{out: out, live: !plain && terminal(out, engines+tableExtra)}
}

// terminal tells whether out can redraw a table of so many lines in place.
func terminal(out io.Writer, lines int) bool {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return false
	}
	if runtime.GOOS == "windows" && os.Getenv("WT_SESSION") == "" {
		return false // old consoles print escapes as text
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width >= tableWidth && height > lines
}

// watch shows s until the returned function is called, which waits for the last drawing.
func (v *view) watch(s *score) (stop func()) {
	every := plainEvery
	if v.live {
		every = liveEvery
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				v.show(s)
			case <-done:
				v.show(s)
				v.leave()
				return
			}
		}
	})
	return func() {
		close(done)
		watcher.Wait()
	}
}

func (v *view) show(s *score) {
	if !v.live {
		fmt.Fprintln(v.out, s.line())
		return
	}
	v.draw(s.table())
}

// draw replaces what was drawn before, in one write so that nothing flickers.
func (v *view) draw(lines []string) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	v.drawn = len(lines)
	_, _ = io.WriteString(v.out, b.String())
}

// leave keeps what is on the screen.
func (v *view) leave() {
	if v.live {
		fmt.Fprintln(v.out)
	}
	v.drawn = 0
}

// line is the progress in one line.
func (s *score) line() string {
	total := sum(s.fleet.stats())
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%-11s %3.0f s  turn %3d/%d  in flight %2d  cached %4.1f %%  prefilled %s",
		s.name, time.Since(s.started).Seconds(), s.done, s.total, s.inFlight, 100*hitShare(total), tokens(total.Prefilled))
}

// table is the progress by engine.
func (s *score) table() []string {
	stats := s.fleet.stats()
	total := sum(stats)
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{
		fmt.Sprintf("%-11s %s %3.0f s   turn %d of %d", s.name, bar(float64(s.done)/float64(max(s.total, 1)), 20), time.Since(s.started).Seconds(), s.done, s.total),
		fmt.Sprintf("%-11s%8s%8s%9s  %-11s%10s  %s", "", "running", "waiting", "sessions", "KV used", "prefilled", "cached of prompts"),
	}
	at := make([]int, len(stats))
	for _, engine := range s.where {
		at[engine]++
	}
	for i, st := range stats {
		kv := float64(st.Stored) / float64(max(st.Capacity, 1))
		lines = append(lines, fmt.Sprintf("%-11s%8d%8d%9d  %s %3.0f %%%10s  %s %5.1f %%", s.fleet.names[i], st.Running, st.Waiting, at[i],
			bar(kv, 5), 100*kv, tokens(st.Prefilled), bar(hitShare(st), 10), 100*hitShare(st)))
	}
	return append(lines, fmt.Sprintf("%-11s%8d%8d%9d  %-11s%10s  %s %5.1f %%", "all", total.Running, total.Waiting, s.live, "",
		tokens(total.Prefilled), bar(hitShare(total), 10), 100*hitShare(total)))
}

// bar is share of width, drawn in eighths.
func bar(share float64, width int) string {
	eighths := int(min(max(share, 0), 1)*float64(width)*8 + 0.5)
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return b + strings.Repeat("·", width-(eighths+7)/8)
}

// tokens writes a count so that people can read it: 812, 46.1 k, 2.84 M.
func tokens(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f k", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2f M", float64(n)/1e6)
}
