package config

import (
	"fmt"
	"sort"
	"strings"
)

const maxProblems = 50 // beyond this the file is not a configuration but something else

// Problem is one fault of a file.
type Problem struct {
	Key     string // path of the key, "engine.1.url"; engines count from 0
	Message string // what is wrong, with the value where it is no secret
	Hint    string // what to write instead; may be empty
	Cause   error  // the error of another package, if it came from one

	place   place
	unknown bool // an unknown key: its value may be anything, a secret under a misspelt name included
	excerpt string
}

// Line and Column are 1-based; 0 when the file has no such place.
func (p *Problem) Line() int   { return p.place.line }
func (p *Problem) Column() int { return p.place.column }

// Error is everything that is wrong with one file, in the order of its lines.
type Error struct {
	File     string
	Problems []Problem
	More     int // problems beyond the first 50
}

func (e *Error) Error() string {
	var b strings.Builder
	for i := range e.Problems {
		p := &e.Problems[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		if p.place.line > 0 {
			fmt.Fprintf(&b, "%s:%d:%d: %s", e.File, p.place.line, p.place.column, p.Message)
		} else {
			fmt.Fprintf(&b, "%s: %s", e.File, p.Message)
		}
		if p.Hint != "" {
			b.WriteString("; " + p.Hint)
		}
		if p.excerpt != "" {
			b.WriteString("\n    " + strings.ReplaceAll(p.excerpt, "\n", "\n    "))
		}
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", e.File, e.More)
	}
	return b.String()
}

// Unwrap gives the causes to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var causes []error
	for i := range e.Problems {
		if e.Problems[i].Cause != nil {
			causes = append(causes, e.Problems[i].Cause)
		}
	}
	return causes
}

// problems collects while a file is read.
type problems struct {
	source *source
	list   []Problem
	seen   map[string]bool // paths that already have a problem: a second one about the same value only confuses
}

func (p *problems) add(problem Problem) {
	p.list = append(p.list, problem)
}

// addf notes a problem of the value at path, once.
func (p *problems) addf(path, hint, format string, args ...any) {
	if p.seen[path] {
		return
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[path] = true
	problem := Problem{Key: path, Hint: hint, Message: fmt.Sprintf(format, args...)}
	if p.source != nil {
		problem.place, _ = p.source.find(path)
	}
	p.add(problem)
}

func (p *problems) unknownKey(path, hint, format string, args ...any) {
	before := len(p.list)
	p.addf(path, hint, format, args...)
	if len(p.list) > before {
		p.list[before].unknown = true
	}
}

func (p *problems) addError(path string, err error) {
	before := len(p.list)
	p.addf(path, "", "%s: %v", shown(path), err)
	if len(p.list) > before {
		p.list[before].Cause = err
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	sort.SliceStable(p.list, func(i, j int) bool {
		a, b := p.list[i].place, p.list[j].place
		if (a.line == 0) != (b.line == 0) {
			return b.line == 0 // what has no place comes last
		}
		return a.line < b.line || a.line == b.line && a.column < b.column
	})
	p.draw()
	e := &Error{File: p.source.name, Problems: p.list}
	if len(e.Problems) > maxProblems {
		e.More = len(e.Problems) - maxProblems
		e.Problems = e.Problems[:maxProblems]
	}
	return e
}

// draw makes the excerpts. The value of an unknown key is never drawn, neither at its own problem nor at a later one on the same line.
func (p *problems) draw() {
	tainted := 0
	for i := range p.list {
		problem := &p.list[i]
		if problem.place.line == 0 || problem.place.line == tainted {
			continue
		}
		problem.excerpt = p.source.excerpt(problem.place, problem.unknown)
		if problem.unknown {
			tainted = problem.place.line
		}
	}
}

// shown is a path as people write it: without the indexes of arrays, which the line number tells better.
func shown(path string) string {
	parts := strings.Split(path, ".")
	kept := parts[:0]
	for _, part := range parts {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ".")
}

// nearest returns the candidate that is few typing errors away from word, or "".
func nearest(word string, candidates []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
	}
	for _, candidate := range candidates {
		if plain(word) == plain(candidate) || len(word) >= 3 && (strings.TrimSuffix(plain(word), "s") == strings.TrimSuffix(plain(candidate), "s")) {
			return candidate
		}
		if d := distance(plain(word), plain(candidate), bestDistance); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours between two short words; words longer than 64 are never near.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var rows [3][65]int
	before, previous, current := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
