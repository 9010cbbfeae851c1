package deploy

import (
	"os"
	"testing"
)

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents reads a YAML file.
func documents(t testing.TB, file string) []any {
	t.Helper()
	docs, err := readYAML(read(t, file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return docs
}

// document reads a YAML file of one document.
func document(t testing.TB, file string) any {
	t.Helper()
	docs := documents(t, file)
	if len(docs) != 1 {
		t.Fatalf("%s: %d documents", file, len(docs))
	}
	return docs[0]
}
