package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// stage owns what the tests of this package share: the built binary and the real engines, which take long to start. It is
// made and torn down by TestMain; the parts come up when the first test asks for them.
type stage struct {
	logs string

	build  func() (string, error)
	vllm   func() ([]*Engine, error)
	mu     sync.Mutex
	driven map[string]bool // real parts that some test has used
	stop   []func()
}

var shared *stage

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	logs, keep := os.Getenv("WARMRING_E2E_LOGS"), true
	if logs == "" {
		var err error
		if logs, err = os.MkdirTemp("", "warmring-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		keep = false
	} else if err := os.MkdirAll(logs, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	shared = newStage(logs)
	code := m.Run()
	shared.close()
	if !keep {
		os.RemoveAll(logs)
	}
	return code
}

func newStage(logs string) *stage {
	s := &stage{logs: logs, driven: map[string]bool{}}
	s.build = sync.OnceValues(func() (string, error) {
		return Build(context.Background(), logs, os.Getenv("WARMRING_E2E_RACE") != "")
	})
	s.vllm = sync.OnceValues(s.startVLLMs)
	return s
}

// startVLLMs brings up two at the same time, on a core each. Where WARMRING_E2E_VLLM names two base URLs, with a comma
// between them, the engines there are driven instead and left running: handy while writing tests. They must serve a model
// called tiny and have been started with VLLM_SERVER_DEV_MODE=1 and the options below.
func (s *stage) startVLLMs() ([]*Engine, error) {
	if first, second, ok := strings.Cut(os.Getenv("WARMRING_E2E_VLLM"), ","); ok {
		return []*Engine{{URL: first, Model: "tiny", Kind: "vllm"}, {URL: second, Model: "tiny", Kind: "vllm"}}, nil
	}
	engines, failed := make([]*Engine, 2), make([]error, 2)
	var starting sync.WaitGroup
	for i := range engines {
		starting.Go(func() {
			engines[i], failed[i] = StartVLLM(context.Background(), VLLM{
				Name: fmt.Sprintf("vllm-%d", i), Core: i, Logs: s.logs,
				Options: []string{"--enable-auto-tool-choice", "--tool-call-parser", "hermes"},
				Env:     []string{"VLLM_SERVER_DEV_MODE=1"},
			})
			if failed[i] == nil {
				s.atEnd(engines[i].Stop)
			}
		})
	}
	starting.Wait()
	return engines, errors.Join(failed...)
}

func (s *stage) atEnd(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = append(s.stop, stop)
}

func (s *stage) drive(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.driven[part] = true
}

func (s *stage) close() {
	var ending sync.WaitGroup
	for _, stop := range s.stop {
		ending.Go(stop)
	}
	ending.Wait()
	if len(s.driven) > 0 {
		fmt.Printf("e2e: real parts that ran: %s\n", strings.Join(sorted(s.driven), "; "))
	} else {
		fmt.Println("e2e: no real part ran")
	}
}

// need fails the test for an error; one that says that a real part is absent skips it, unless all are required.
func need(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrAbsent) && os.Getenv("WARMRING_E2E") != "require" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// twoVLLMs are the real vLLM engines that all tests share, with empty caches.
func twoVLLMs(t *testing.T) []*Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("starting real vLLM takes a minute")
	}
	begin := time.Now()
	engines, err := shared.vllm()
	need(t, err)
	if waited := time.Since(begin); waited > time.Second {
		t.Logf("two real vLLM are ready after %v", waited.Round(time.Second))
	}
	for _, e := range engines {
		await(t, 30*time.Second, "an idle engine", func() bool { return inWork(t, []*Engine{e}) == 0 })
		if err := e.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	shared.drive(version("vllm") + " (two)")
	return engines
}

// llamas are so many real llama.cpp servers of this test's own.
func llamas(t *testing.T, n, slots int) []*Engine {
	t.Helper()
	var engines []*Engine
	for i := range n {
		e, err := StartLlamaCPP(t.Context(), LlamaCPP{Name: fmt.Sprintf("llamacpp-%d", i), Slots: slots, Logs: shared.logs})
		need(t, err)
		t.Cleanup(e.Stop)
		engines = append(engines, e)
	}
	shared.drive(version("llamacpp"))
	return engines
}

// version of a real part, as the script install wrote it down.
func version(part string) string {
	text, err := os.ReadFile(filepath.Join(Home(), "stamps", part+".version"))
	if err != nil {
		return part
	}
	return strings.TrimSpace(string(text))
}

// proxy starts a proxy before the engines, which are called a, b, c … in it; it ends with the test. At the end all of its
// gauges must be 0 again.
func proxy(t *testing.T, settings string, engines ...*Engine) *Warmring {
	t.Helper()
	return proxyAs(t, Proxy{Settings: settings}, 2*time.Second, engines...)
}

// proxyAs is proxy for one that is described further, whose gauges may take so long.
func proxyAs(t *testing.T, p Proxy, idle time.Duration, engines ...*Engine) *Warmring {
	t.Helper()
	binary, err := shared.build()
	if err != nil {
		t.Fatal(err)
	}
	p.Binary, p.Logs, p.Engines = binary, shared.logs, map[string]string{}
	for i, e := range engines {
		p.Engines[engineName(i)] = e.EngineLines()
	}
	w, err := StartWarmring(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Idle(context.Background(), idle); err != nil {
			t.Errorf("after the test: %v", err)
		}
		w.Stop()
		if t.Failed() {
			t.Logf("%s printed last:\n%s", w.Name, w.Tail(60))
		}
	})
	return w
}

// engineName of the engine with that index: a, b, c …
func engineName(i int) string { return string(rune('a' + i)) }

// quantile of durations, by rank.
func quantile(all []time.Duration, q float64) time.Duration { return Quantile(all, q) }
