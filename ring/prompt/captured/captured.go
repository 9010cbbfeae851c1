// Package captured holds what real clients sent, request by request, for tests to read. Only tests import it.
// testdata/README.md says where the requests come from and under which licences.
package captured

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"
)

//go:embed testdata
var files embed.FS

// Request is one request as it was sent.
type Request struct {
	Target  string      // path and query
	Headers [][2]string // name and value, in order
	Body    string
}

// Header returns the value of the first header of that name, whatever its case; nil when there is none.
func (r *Request) Header(name string) []byte {
	for _, h := range r.Headers {
		if strings.EqualFold(h[0], name) {
			return []byte(h[1])
		}
	}
	return nil
}

// Names returns the names of all captures, such as "codex" and "codex+fork", sorted.
func Names() []string {
	entries, err := fs.ReadDir(files, "testdata")
	if err != nil {
		panic(err) // the directory is part of the binary
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jsonl.zst"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Load returns the requests of a capture in the order in which they arrived.
func Load(name string) ([]Request, error) {
	packed, err := files.ReadFile("testdata/" + name + ".jsonl.zst")
	if err != nil {
		return nil, fmt.Errorf("no capture %q: %w", name, err)
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("unpacking capture %q: %w", name, err)
	}
	defer r.Close()
	var requests []Request
	for d := json.NewDecoder(r); d.More(); {
		var q Request
		if err := d.Decode(&q); err != nil {
			return nil, fmt.Errorf("reading capture %q: %w", name, err)
		}
		requests = append(requests, q)
	}
	return requests, nil
}

// Stability returns the table of how each request extends the one before: one line for each capture.
func Stability() string {
	table, err := files.ReadFile("testdata/STABILITY.txt")
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return string(table)
}
