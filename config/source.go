package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where something stands in the file; 1-based, columns count bytes.
type place struct{ line, column, length int }

// source is one file's text and where each of its keys stands. A path is the keys from the root, joined with dots; elements of arrays are their index: "engine.1.url".
type source struct {
	name   string
	digest [32]byte // SHA-256 of the text
	lines  [][]byte
	places map[string]place
}

// readSource parses data into a tree of maps and finds the place of every key. Syntax errors end here, since nothing behind one can be trusted.
func readSource(name string, data []byte) (*source, map[string]any, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a byte order mark, as some editors leave it
	src := &source{name: name, lines: bytes.Split(data, []byte("\n")), places: map[string]place{}}
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		var at *toml.DecodeError
		p := &problems{source: src}
		if errors.As(err, &at) {
			line, column := at.Position()
			p.add(Problem{Key: strings.Join(at.Key(), "."), place: place{line, column, 1}, Message: strings.TrimPrefix(at.Error(), "toml: ")})
		} else {
			p.add(Problem{Message: strings.TrimPrefix(err.Error(), "toml: ")})
		}
		return nil, nil, p.err()
	}
	src.locate(data)
	return src, tree, nil
}

// locate walks the syntax tree, which go-toml/v2 gives out under "unstable", and notes the place of every key. The document is known to be valid.
func (s *source) locate(data []byte) {
	var parser unstable.Parser
	parser.Reset(data)
	starts := lineStarts(data)
	elements := map[string]int{} // array-table path → index of its current element
	table := ""
	for parser.NextExpression() {
		node := parser.Expression()
		switch node.Kind {
		case unstable.Table:
			table = s.enter(starts, "", node.Key(), elements, false)
		case unstable.ArrayTable:
			table = s.enter(starts, "", node.Key(), elements, true)
		case unstable.KeyValue:
			s.keyValue(starts, table, node, elements)
		}
	}
}

// enter resolves a (dotted) key below a table, notes the places of its parts, and returns its path.
func (s *source) enter(starts []int, table string, key unstable.Iterator, elements map[string]int, newElement bool) string {
	path := table
	for key.Next() {
		path = join(path, string(key.Node().Data))
		if _, seen := s.places[path]; !seen {
			s.places[path] = placeOf(starts, key.Node().Raw)
		}
		last := !key.Node().Next().Valid()
		if index, isArray := elements[path]; last && newElement {
			if isArray {
				index++
			}
			elements[path] = index
			at := placeOf(starts, key.Node().Raw)
			path = join(path, strconv.Itoa(index))
			s.places[path] = at
		} else if isArray {
			path = join(path, strconv.Itoa(index))
		}
	}
	return path
}

func (s *source) keyValue(starts []int, table string, node *unstable.Node, elements map[string]int) {
	path := s.enter(starts, table, node.Key(), elements, false)
	s.value(starts, path, node.Value(), elements)
}

func (s *source) value(starts []int, path string, value *unstable.Node, elements map[string]int) {
	children := value.Children()
	switch value.Kind {
	case unstable.InlineTable:
		for children.Next() {
			if children.Node().Kind == unstable.KeyValue {
				s.keyValue(starts, path, children.Node(), elements)
			}
		}
	case unstable.Array:
		for index := 0; children.Next(); {
			element := children.Node()
			if element.Kind == unstable.Comment {
				continue
			}
			at := join(path, strconv.Itoa(index))
			if element.Raw.Length > 0 {
				s.places[at] = placeOf(starts, element.Raw)
			}
			s.value(starts, at, element, elements)
			index++
		}
	}
}

// find returns the place of a path or, where that is not in the file, of the nearest table around it.
func (s *source) find(path string) (place, bool) {
	for {
		if at, ok := s.places[path]; ok {
			return at, true
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return place{}, false
		}
		path = path[:dot]
	}
}

// has tells whether a path is in the file.
func (s *source) has(path string) bool {
	_, ok := s.places[path]
	return ok
}

// excerpt draws the line of a place with a mark under it. A line that holds a secret is not drawn: errors end up in logs.
func (s *source) excerpt(at place, keyOnly bool) string {
	if at.line < 1 || at.line > len(s.lines) {
		return ""
	}
	line := strings.TrimRight(string(s.lines[at.line-1]), "\r")
	if end := at.column - 1 + at.length; keyOnly && end <= len(line) {
		line = line[:end] + " …"
	}
	if holdsSecret(line) || s.inSecretTable(at.line) {
		return ""
	}
	const widest = 120
	if len(line) > widest {
		line = strings.ToValidUTF8(line[:widest], "") + "…"
	}
	var mark strings.Builder
	for i := 0; i < at.column-1 && i < len(line); i++ {
		switch {
		case line[i] == '\t':
			mark.WriteByte('\t')
		case line[i]&0xc0 != 0x80: // one per character, not per byte
			mark.WriteByte(' ')
		}
	}
	mark.WriteString(strings.Repeat("~", max(1, min(at.length, widest-min(at.column, widest)+1))))
	number := strconv.Itoa(at.line)
	return fmt.Sprintf("%s | %s\n%s | %s", number, printable(line), strings.Repeat(" ", len(number)), mark.String())
}

// innocent are our own keys that sound like secrets.
var innocent = strings.NewReplacer("kv_tokens", "", "index_tokens", "", "max_header", "", "[headers]", "")

// holdsSecret tells whether a line may show a secret: one that names a key, a token, a header with a value, or that has a user in a URL. Better one excerpt too few.
func holdsSecret(line string) bool {
	lower := innocent.Replace(strings.ToLower(line))
	if strings.Contains(lower, "@") || strings.Contains(lower, "?") {
		return true
	}
	for _, word := range [...]string{"key", "secret", "token", "auth", "header", "password"} {
		if i := strings.Index(lower, word); i >= 0 && strings.ContainsRune(lower[i:], '=') {
			return true
		}
	}
	return false
}

// inSecretTable tells whether the nearest table header above a line is that of secrets.
func (s *source) inSecretTable(line int) bool {
	for i := min(line, len(s.lines)) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(string(s.lines[i])); strings.HasPrefix(text, "[") {
			return strings.HasSuffix(strings.TrimRight(strings.SplitN(text, "#", 2)[0], " \t]"), ".headers")
		}
	}
	return false
}

func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '·'
		}
		return r
	}, line)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, b := range data {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func placeOf(starts []int, raw unstable.Range) place {
	offset := int(raw.Offset)
	low, high := 0, len(starts)
	for high-low > 1 {
		if middle := (low + high) / 2; starts[middle] <= offset {
			low = middle
		} else {
			high = middle
		}
	}
	return place{line: low + 1, column: offset - starts[low] + 1, length: int(raw.Length)}
}
