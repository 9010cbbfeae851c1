package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// Engine is an inference server on loopback: a real one in a process of its own, or a simulated one in this process.
type Engine struct {
	*Process
	URL   string // without a slash at the end
	Model string // the name it serves
	Kind  string // as the proxy's configuration calls it

	sim *sim.Server // behind it, for a simulated one
}

// VLLM describes a real vLLM on one core.
type VLLM struct {
	Name     string
	Core     int      // which core; more than there are wraps around
	KVTokens int      // size of the KV cache; 0 = 524,288 (1 GiB)
	Context  int      // longest request; 0 = 32,768, or what fits KVTokens
	Options  []string // further server options
	Env      []string // further environment, as "NAME=value"
	Logs     string   // folder for its log
}

// vllmBlock is the size of vLLM's cache blocks, in tokens: warm prefixes are a multiple of it.
const vllmBlock = 32

// startLimit is how long an engine may take to start: a minute on an idle machine, several on a busy one.
const startLimit = 8 * time.Minute

// StartVLLM starts a real vLLM and waits until it answers. The caller must Stop it.
func StartVLLM(ctx context.Context, v VLLM) (*Engine, error) {
	if _, err := installed("vllm", "models/tiny/config.json"); err != nil {
		return nil, err
	}
	module, err := root()
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"bash", filepath.Join(module, "e2e", "engines", "start_vllm.sh"),
		filepath.Join(Home(), "vllm"), filepath.Join(Home(), "models", "tiny"), strconv.Itoa(port), strconv.Itoa(v.Core % runtime.NumCPU()),
	}
	if v.KVTokens > 0 {
		args = append(args, "--num-gpu-blocks-override", strconv.Itoa(v.KVTokens/vllmBlock))
		if v.Context == 0 {
			v.Context = min(32768, v.KVTokens-2*vllmBlock)
		}
	}
	if v.Context > 0 {
		args = append(args, "--max-model-len", strconv.Itoa(v.Context))
	}
	p, err := StartProcess(Command{Name: v.Name, Args: append(args, v.Options...), Env: append(os.Environ(), v.Env...), Logs: v.Logs})
	if err != nil {
		return nil, err
	}
	e := &Engine{Process: p, URL: "http://127.0.0.1:" + strconv.Itoa(port), Model: "tiny", Kind: "vllm"}
	if err := p.await(ctx, startLimit, func(ctx context.Context) error { return expectOK(ctx, e.URL+"/health") }); err != nil {
		p.Stop()
		return nil, err
	}
	return e, nil
}

// Reset empties a vLLM's prefix cache. The engine must have been started with VLLM_SERVER_DEV_MODE=1.
func (e *Engine) Reset(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/reset_prefix_cache", nil)
	if err != nil {
		return fmt.Errorf("reset %s: %w", e.URL, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("reset %s: %w", e.URL, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("reset %s: %s", e.URL, answer.Status)
	}
	return nil
}

// Running is what a vLLM says of the requests it has in work and in its queue.
func (e *Engine) Running(ctx context.Context) (running, waiting float64, err error) {
	m, err := Scrape(ctx, e.URL+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	return m.Sum("vllm:num_requests_running"), m.Sum("vllm:num_requests_waiting"), nil
}

// LlamaCPP describes a real llama.cpp server on one thread: the stand-in for an engine of the user's own.
type LlamaCPP struct {
	Name  string
	Slots int    // sequences it keeps at a time; 0 = 2
	Logs  string // folder for its log
}

// StartLlamaCPP starts a real llama.cpp server and waits until it answers. The caller must Stop it.
func StartLlamaCPP(ctx context.Context, l LlamaCPP) (*Engine, error) {
	if _, err := installed("llamacpp", "models/tiny.gguf"); err != nil {
		return nil, err
	}
	module, err := root()
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	p, err := StartProcess(Command{
		Name: l.Name, Logs: l.Logs,
		Args: []string{
			filepath.Join(Home(), "llamacpp", "bin", "python"), filepath.Join(module, "e2e", "engines", "llamacpp.py"),
			filepath.Join(Home(), "models", "tiny.gguf"), strconv.Itoa(port), strconv.Itoa(max(l.Slots, 2)),
		},
	})
	if err != nil {
		return nil, err
	}
	e := &Engine{Process: p, URL: "http://127.0.0.1:" + strconv.Itoa(port), Kind: "custom"}
	err = p.await(ctx, time.Minute, func(ctx context.Context) error {
		if err := expectOK(ctx, e.URL+"/health"); err != nil {
			return err
		}
		e.Model, err = firstModel(ctx, e.URL)
		return err
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return e, nil
}

func firstModel(ctx context.Context, base string) (string, error) {
	body, err := get(ctx, base+"/v1/models")
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("models of %s: %v in %.200q", base, err, body)
	}
	return list.Data[0].ID, nil
}

func expectOK(ctx context.Context, url string) error {
	_, err := get(ctx, url)
	return err
}

// get reads a small page; any status but 200 is an error.
func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %.200s", url, answer.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
