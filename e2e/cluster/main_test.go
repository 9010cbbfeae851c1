package cluster

import (
	"context"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e"
)

// raced: the binary looks for data races, which makes it several times slower.
var raced = os.Getenv("WARMRING_E2E_RACE") != ""

// figures tells that the machine is quiet enough for what depends on its speed to be asserted, too.
var figures = os.Getenv("WARMRING_FIGURES") != ""

// patience is for what comes in a moment, however slow and loaded the machine.
const patience = 90 * time.Second

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "warmring-cluster-")
	if err != nil {
		return "", err
	}
	folder = dir
	return e2e.Build(context.Background(), dir, raced)
})

var folder string // of the binary

func TestMain(m *testing.M) {
	flag.Parse()
	// What runs in parallel here mostly waits: for the end of a cut, for a proxy that stands still, for a slow engine.
	_ = flag.Set("test.parallel", "4")
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}
