package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// tableWidth is the most columns a table may take.
const tableWidth = 100

// table is text in columns: the first left, the others right.
type table struct {
	title string
	rows  [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "\n%s\n", t.title)
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
		if n == 0 {
			fmt.Fprintln(w, strings.Repeat("─", utf8.RuneCountInString(line.String())))
		}
	}
}

// report is where results go: tables to out, and each measurement as a JSON line to lines, which may be nil.
type report struct {
	out   io.Writer
	lines io.Writer
}

func (r *report) line(m map[string]any) {
	if r.lines != nil {
		text, _ := json.Marshal(m)
		fmt.Fprintf(r.lines, "%s\n", text)
	}
}

// spread keeps a figure's repetitions.
type spread []float64

func (s spread) sorted() []float64 { return slices.Sorted(slices.Values(s)) }

func (s spread) median() float64 {
	if len(s) == 0 {
		return 0
	}
	l := s.sorted()
	return (l[len(l)/2] + l[(len(l)-1)/2]) / 2
}

func (s spread) least() float64 { return slices.Min(s) }
func (s spread) most() float64  { return slices.Max(s) }

// String is the median and, in brackets, the least and the most.
func (s spread) String() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.median()), short(s.least()), short(s.most()))
}

// short is a number in few characters.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
