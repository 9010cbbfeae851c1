package deploy

import (
	"reflect"
	"strings"
	"testing"
)

func TestTheYAMLReaderReadsWhatTheFilesUse(t *testing.T) {
	docs, err := readYAML(`# head
base: &base
  image: a:dev # why
  ports: ["127.0.0.1:1:2", b]
  none: {}
one:
  <<: *base
  image: other
two: *base
steps:
- plain # at the key's indentation
- name: x
  deep:
    - a: "1 # no comment"
      b: [x, {k: v}]
text: |
  first: line
    second # line
end: yes it is
---
second: document
`)
	if err != nil {
		t.Fatal(err)
	}
	base := map[string]any{"image": "a:dev", "ports": []any{"127.0.0.1:1:2", "b"}, "none": map[string]any{}}
	want := []any{
		map[string]any{
			"base": base, "two": base,
			"one": map[string]any{"image": "other", "ports": base["ports"], "none": base["none"]},
			"steps": []any{"plain", map[string]any{"name": "x", "deep": []any{
				map[string]any{"a": "1 # no comment", "b": []any{"x", map[string]any{"k": "v"}}}}}},
			"text": "first: line\n    second # line", "end": "yes it is",
		},
		map[string]any{"second": "document"},
	}
	if !reflect.DeepEqual(docs, want) {
		t.Errorf("read %v\nwant %v", docs, want)
	}
}

func TestTheYAMLReaderRefusesWhatIsOdd(t *testing.T) {
	for text, says := range map[string]string{
		"a: 1\na: 2\n":           "twice",
		"a:\n\tb: 1\n":           "tab",
		"a:\n    b: 1\n  c: 2\n": "odd indentation",
		"a: [1, 2\n":             "bracket",
		"a: b: c\n":              "colon",
		"a: *gone\n":             "no anchor",
		"word\n":                 "neither a key",
		"a: \"b\n":               "quote",
		"a: >-\n  b\n":           "not read here",
		"a: 1\n b: 2\n":          "odd indentation",
		"- a: 1\n   b: 2\n":      "odd indentation",
		"a: [x] y\n":             "behind a value",
	} {
		if docs, err := readYAML(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: read %v with error %v, want one that says %q", text, docs, err, says)
		}
	}
}
