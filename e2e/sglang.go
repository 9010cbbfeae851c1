package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// SGLang describes a real SGLang on one core.
type SGLang struct {
	Name    string
	Core    int      // which core; more than there are wraps around
	Options []string // further server options
	Env     []string // further environment, as "NAME=value"
	Logs    string   // folder for its log
}

// StartSGLang starts a real SGLang and waits until it answers. The caller must Stop it.
func StartSGLang(ctx context.Context, s SGLang) (*Engine, error) {
	if _, err := installed("sglang", "models/tiny/config.json"); err != nil {
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
		"bash", filepath.Join(module, "e2e", "engines", "start_sglang.sh"),
		filepath.Join(Home(), "sglang"), filepath.Join(Home(), "models", "tiny"), strconv.Itoa(port), strconv.Itoa(s.Core % runtime.NumCPU()),
	}
	p, err := StartProcess(Command{Name: s.Name, Args: append(args, s.Options...), Env: append(os.Environ(), s.Env...), Logs: s.Logs})
	if err != nil {
		return nil, err
	}
	e := &Engine{Process: p, URL: "http://127.0.0.1:" + strconv.Itoa(port), Model: "tiny", Kind: "sglang"}
	if err := p.await(ctx, startLimit, func(ctx context.Context) error { return expectOK(ctx, e.URL+"/health") }); err != nil {
		p.Stop()
		return nil, err
	}
	return e, nil
}

// Flush empties an SGLang's prefix cache, which it does only while it has nothing in work: it is asked again until then.
func (e *Engine) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/flush_cache", nil)
		if err != nil {
			return fmt.Errorf("flush %s: %w", e.URL, err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return fmt.Errorf("flush %s: %w", e.URL, err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("flush %s: %s", e.URL, answer.Status)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
