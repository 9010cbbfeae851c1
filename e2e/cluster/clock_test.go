package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmring/warmring/e2e"
)

// wallSeam is where the proxies' gossip takes its wall clock from unless a test gives it another one. No setting changes it, so a
// binary whose clock is wrong is built with that line replaced; nothing else on the wire has a time of day.
const wallSeam, wrongWall = "o.Wall = time.Now\n", `o.Wall = func() time.Time {
			off, err := time.ParseDuration(os.Getenv("TEST_CLOCK_OFFSET"))
			if err != nil {
				panic(err)
			}
			return time.Now().Add(off)
		}
`

// wrongClock builds that binary.
func wrongClock(t *testing.T) (string, error) {
	if os.Getenv("WARMRING_E2E_BINARY") != "" {
		t.Skip("a given binary's clock cannot be put wrong")
	}
	module, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	options := filepath.Join(module, "ring", "gossip", "options.go")
	text, err := os.ReadFile(options)
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), wallSeam) != 1 || !strings.Contains(string(text), "\"os\"\n") {
		return "", fmt.Errorf("%s does not hold the line that this test replaces: %s", options, wallSeam)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "options.go")
	if err := os.WriteFile(other, []byte(strings.Replace(string(text), wallSeam, wrongWall, 1)), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{options: other}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "warmring")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", program, ".")
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, nil
}

// Wall clocks five minutes apart decide nothing: sessions that move between engines, and operators' drains, are followed by all
// proxies, whichever had the last word.
func TestClocksFiveMinutesOff(t *testing.T) {
	t.Parallel() // half of it is the build
	f := described(t, 3, 4)
	program, err := wrongClock(t)
	if err != nil {
		t.Fatal(err)
	}
	f.build = func() (string, error) { return program, nil }
	for i, off := range []string{"-5m", "0s", "5m"} {
		f.env[i] = "TEST_CLOCK_OFFSET=" + off
	}
	f.begin()
	if a, err := (e2e.Client{Base: f.running()[0].URL}).Ask(context.Background(), "/v1/chat/completions", e2e.Body{"model": "m", "messages": []e2e.Message{{Role: "user", Content: "x"}}}, nil); err != nil || a.Status != 200 {
		t.Fatal(err, a)
	}
	c, d := f.crowd(24, true), f.crowd(24, false)
	c.heard("before, with ids", 2)
	d.heard("before, without", 2)
	for i := range 6 {
		engine := fmt.Sprint("e", i%4)
		f.steer(i%3, engine, true)
		f.settle()
		c.heard(fmt.Sprintf("%s drained through proxy-%d, with ids", engine, i%3), 1)
		d.heard("the same, without", 1)
		for _, s := range append(c.sessions, d.sessions...) {
			if s.lives == engine {
				t.Errorf("session %d is on the drained %s", s.number, engine)
			}
		}
		f.steer((i+1)%3, engine, false)
		f.settle()
		f.leave(engine, false)
	}
	// The one that is ahead comes back with a clock that is right: what it wrote in the future is no stronger than what comes after.
	f.down(2).Kill()
	f.env[2] = "TEST_CLOCK_OFFSET=0s"
	f.start(2)
	f.whole()
	for i, engine := range []string{"e2", "e3"} {
		f.steer(2*i, engine, true)
		f.settle()
		c.heard(engine+" drained after the clock was put right", 2)
		f.steer(1, engine, false)
		f.settle()
		f.leave(engine, false)
	}
}
