package deploy

import (
	"fmt"
	"strings"
)

// A reader of the part of YAML that the files in this folder keep to: block mappings and sequences, flow ones on one line,
// plain and quoted scalars, literal blocks, anchors, aliases, merge keys, comments, several documents. All scalars are strings.
// What it does not know is an error, and so are duplicate keys, tabs and odd indentation, which YAML's own readers forgive.

type yamlLine struct {
	number, indent int
	text           string // without indentation and comment
}

type yamlReader struct {
	raw     []string
	lines   []yamlLine
	at      int
	anchors map[string]any
}

// readYAML answers the documents of a file as map[string]any, []any and string.
func readYAML(text string) (docs []any, err error) {
	r := &yamlReader{raw: strings.Split(text, "\n")}
	defer func() {
		if p := recover(); p != nil {
			fault, ok := p.(yamlFault)
			if !ok {
				panic(p)
			}
			docs, err = nil, fault
		}
	}()
	for i, raw := range r.raw {
		body := strings.TrimLeft(raw, " ")
		if strings.Contains(raw, "\t") {
			r.fail(i+1, "a tab")
		}
		if body = uncommented(body); body != "" {
			r.lines = append(r.lines, yamlLine{i + 1, len(raw) - len(strings.TrimLeft(raw, " ")), body})
		}
	}
	for r.at < len(r.lines) {
		if r.lines[r.at].text == "---" {
			r.at++
			continue
		}
		r.anchors = map[string]any{}
		docs = append(docs, r.block(r.lines[r.at].indent))
		if r.at < len(r.lines) && r.lines[r.at].text != "---" {
			r.fail(r.lines[r.at].number, "odd indentation")
		}
	}
	return docs, nil
}

type yamlFault string

func (f yamlFault) Error() string { return string(f) }

func (r *yamlReader) fail(line int, format string, a ...any) {
	panic(yamlFault(fmt.Sprintf("line %d: "+format, append([]any{line}, a...)...)))
}

// uncommented cuts a comment off, but not inside quotes.
func uncommented(s string) string {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote && (quote == '\'' || s[i-1] != '\\') {
				quote = 0
			}
		case (c == '"' || c == '\'') && (i == 0 || strings.IndexByte(" [,{:", s[i-1]) >= 0):
			quote = c
		case c == '#' && (i == 0 || s[i-1] == ' '):
			return strings.TrimRight(s[:i], " ")
		}
	}
	return strings.TrimRight(s, " ")
}

// block reads the mapping or sequence whose lines begin at this indentation.
func (r *yamlReader) block(indent int) any {
	if isItem(r.lines[r.at].text) {
		return r.sequence(indent)
	}
	return r.mapping(indent)
}

func isItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

func (r *yamlReader) sequence(indent int) []any {
	list := []any{}
	for r.at < len(r.lines) && r.lines[r.at].indent == indent && isItem(r.lines[r.at].text) {
		line := &r.lines[r.at]
		rest := strings.TrimLeft(line.text[1:], " ")
		if _, _, isKey := splitKey(rest); isKey {
			// The item is a mapping that begins on this line: read it as if the dash were a blank.
			line.indent += len(line.text) - len(rest)
			line.text = rest
			list = append(list, r.mapping(line.indent))
			continue
		}
		r.at++
		list = append(list, r.value(*line, rest))
	}
	return list
}

func (r *yamlReader) mapping(indent int) map[string]any {
	m := map[string]any{}
	var merged map[string]any
	for r.at < len(r.lines) && r.lines[r.at].indent == indent && r.lines[r.at].text != "---" {
		line := r.lines[r.at]
		key, rest, ok := splitKey(line.text)
		if !ok {
			r.fail(line.number, "neither a key nor an item: %q", line.text)
		}
		if _, twice := m[key]; twice {
			r.fail(line.number, "key %q twice", key)
		}
		r.at++
		v := r.value(line, rest)
		if key == "<<" {
			if merged, ok = v.(map[string]any); !ok {
				r.fail(line.number, "<< needs a mapping")
			}
			continue
		}
		m[key] = v
	}
	for key, v := range merged {
		if _, own := m[key]; !own {
			m[key] = v
		}
	}
	return m
}

// splitKey cuts "key: value" and "key:".
func splitKey(text string) (key, rest string, ok bool) {
	if text == "" || strings.IndexByte(`"'[{&*`, text[0]) >= 0 {
		return "", "", false
	}
	if key, rest, ok = strings.Cut(text, ": "); ok {
		return key, strings.TrimLeft(rest, " "), true
	}
	key, ok = strings.CutSuffix(text, ":")
	return key, "", ok
}

// value reads what stands behind a key or dash: on the same line, or in the lines below.
func (r *yamlReader) value(line yamlLine, rest string) any {
	anchor := ""
	if strings.HasPrefix(rest, "&") {
		anchor, rest, _ = strings.Cut(rest[1:], " ")
	}
	var v any
	switch {
	case rest == "|":
		v = r.literal(line)
	case rest != "":
		s := scanner{r: r, line: line.number, text: rest}
		v = s.flow("")
		if s.text != "" {
			r.fail(line.number, "%q behind a value", s.text)
		}
	case r.at < len(r.lines) && (r.lines[r.at].indent > line.indent || r.lines[r.at].indent == line.indent && isItem(r.lines[r.at].text) && !isItem(line.text)):
		v = r.block(r.lines[r.at].indent)
	}
	if anchor != "" {
		r.anchors[anchor] = v
	}
	return v
}

// literal reads a block of text as it stands.
func (r *yamlReader) literal(line yamlLine) string {
	var out []string
	last := line.number
	for i := line.number; i < len(r.raw); i++ {
		raw := r.raw[i]
		if indent := len(raw) - len(strings.TrimLeft(raw, " ")); strings.TrimSpace(raw) != "" && indent <= line.indent {
			break
		}
		out = append(out, raw)
		last = i + 1
	}
	for r.at < len(r.lines) && r.lines[r.at].number <= last {
		r.at++
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// scanner reads values on one line.
type scanner struct {
	r    *yamlReader
	line int
	text string
}

func (s *scanner) skip(n int) { s.text = strings.TrimLeft(s.text[n:], " ") }

// flow reads one value; ends are the characters that a plain scalar must not run over.
func (s *scanner) flow(ends string) any {
	if s.text == "" {
		s.r.fail(s.line, "no value")
	}
	switch s.text[0] {
	case '[':
		list := []any{}
		for s.skip(1); !strings.HasPrefix(s.text, "]"); {
			list = append(list, s.flow(",]"))
			s.separator("]")
		}
		s.skip(1)
		return list
	case '{':
		m := map[string]any{}
		for s.skip(1); !strings.HasPrefix(s.text, "}"); {
			key, rest, ok := strings.Cut(s.text, ": ")
			if !ok {
				s.r.fail(s.line, "a key is missing in {}")
			}
			s.text = strings.TrimLeft(rest, " ")
			m[key] = s.flow(",}")
			s.separator("}")
		}
		s.skip(1)
		return m
	case '"', '\'':
		end := strings.IndexByte(s.text[1:], s.text[0])
		if end < 0 || strings.Contains(s.text[1:1+end], `\`) {
			s.r.fail(s.line, "a quote does not end, or has escapes")
		}
		v := s.text[1 : 1+end]
		s.skip(end + 2)
		return v
	case '*':
		v, known := s.r.anchors[s.text[1:]]
		if !known {
			s.r.fail(s.line, "no anchor %q", s.text[1:])
		}
		s.text = ""
		return v
	case '|', '>', '&', '!', '%', '@', '`':
		s.r.fail(s.line, "%q is not read here", s.text[0])
	}
	end := len(s.text)
	if ends != "" {
		if end = strings.IndexAny(s.text, ends); end < 0 {
			s.r.fail(s.line, "a bracket is missing")
		}
	}
	v := strings.TrimRight(s.text[:end], " ")
	if strings.Contains(v, ": ") {
		s.r.fail(s.line, "a colon in a plain value: quote it")
	}
	s.skip(end)
	return v
}

func (s *scanner) separator(closing string) {
	switch {
	case strings.HasPrefix(s.text, ","):
		s.skip(1)
	case !strings.HasPrefix(s.text, closing):
		s.r.fail(s.line, "neither , nor %s", closing)
	}
}

// at walks into documents: names in mappings, numbers in sequences. nil where nothing is.
func at(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

func text(v any, path ...any) string { s, _ := at(v, path...).(string); return s }

func list(v any, path ...any) []any { l, _ := at(v, path...).([]any); return l }

func table(v any, path ...any) map[string]any { m, _ := at(v, path...).(map[string]any); return m }

func texts(v any, path ...any) (out []string) {
	for _, item := range list(v, path...) {
		out = append(out, text(item))
	}
	return out
}
