package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Metrics is one page of Prometheus text: series (name and labels as printed) to value.
type Metrics map[string]float64

// Scrape reads a metrics page.
func Scrape(ctx context.Context, url string) (Metrics, error) {
	body, err := get(ctx, url)
	if err != nil {
		return nil, err
	}
	m := Metrics{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		// A label's value may hold spaces, so the value begins behind the last brace or, without labels, the name.
		end := max(strings.LastIndexByte(line, '}')+1, 0)
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		fields := strings.Fields(line[max(end, 0):])
		if end <= 0 || len(fields) == 0 {
			return nil, fmt.Errorf("metrics of %s: odd line %.100q", url, line)
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: odd value in %.100q: %w", url, line, err)
		}
		m[line[:end]] = value
	}
	return m, nil
}

// Has tells whether a metric of that name is on the page, whatever its labels.
func (m Metrics) Has(name string) bool { return len(m.of(name)) > 0 }

// Sum over all series of a name whose labels hold each of the given texts, such as `engine="a"`.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
next:
	for _, series := range m.of(name) {
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		sum += m[series]
	}
	return sum
}

// of lists the series of a metric in order.
func (m Metrics) of(name string) (series []string) {
	for s := range m {
		if s == name || strings.HasPrefix(s, name+"{") {
			series = append(series, s)
		}
	}
	sort.Strings(series)
	return series
}
