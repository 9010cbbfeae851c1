package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Script is a real client at work: a program of e2e/clients or an agent, run in an environment that holds nothing of this
// process's but the path.
type Script struct {
	Args  []string      // program and arguments
	Env   []string      // further environment, as "NAME=value"
	Home  string        // its home and working folder, which it may write to
	Limit time.Duration // 0 = one minute
}

// Run it to its end. Its output comes back also when it fails.
func (s Script) Run(ctx context.Context) (stdout []byte, err error) {
	if s.Limit == 0 {
		s.Limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	path := "/usr/local/bin:/usr/bin:/bin"
	if node, err := exec.LookPath("node"); err == nil {
		path = filepath.Dir(node) + ":" + path
	}
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir = s.Home
	cmd.Env = append([]string{"PATH=" + path, "HOME=" + s.Home, "LANG=C.UTF-8", "NO_PROXY=127.0.0.1"}, s.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	ownGroup(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd, true) }
	cmd.WaitDelay = 5 * time.Second
	stdout, err = cmd.Output()
	if err != nil {
		return stdout, fmt.Errorf("%s: %w\n%s\n%s", filepath.Base(s.Args[0]), err, stderr.Bytes(), stdout)
	}
	return stdout, nil
}

// PythonClient is a script of e2e/clients with the installed Python SDKs.
func PythonClient(home, script string, args ...string) (Script, error) {
	python, err := installed("clients", "clients/python/bin/python")
	if err != nil {
		return Script{}, err
	}
	module, err := root()
	if err != nil {
		return Script{}, err
	}
	return Script{Home: home, Args: append([]string{python, filepath.Join(module, "e2e", "clients", script)}, args...)}, nil
}

// NodeClient is a script of e2e/clients with the installed JavaScript SDKs, which Node.js finds beside it only: the script
// is copied to its home and their folder linked there.
func NodeClient(home, script string, args ...string) (Script, error) {
	modules, err := installed("clients", "clients/node/node_modules")
	if err != nil {
		return Script{}, err
	}
	module, err := root()
	if err != nil {
		return Script{}, err
	}
	text, err := os.ReadFile(filepath.Join(module, "e2e", "clients", script))
	if err != nil {
		return Script{}, fmt.Errorf("client %s: %w", script, err)
	}
	local := filepath.Join(home, script)
	if err := os.WriteFile(local, text, 0o600); err != nil {
		return Script{}, fmt.Errorf("client %s: %w", script, err)
	}
	if err := os.Symlink(modules, filepath.Join(home, "node_modules")); err != nil && !os.IsExist(err) {
		return Script{}, fmt.Errorf("client %s: %w", script, err)
	}
	return Script{Home: home, Args: append([]string{"node", local}, args...)}, nil
}

// Pi is the coding agent pi, set up for one server. API is its word for a wire format: openai-completions (which is chat),
// openai-responses or anthropic-messages.
type Pi struct {
	Home      string // holds its settings and sessions
	Base      string // URL without /v1
	Model     string
	API       string
	MaxTokens int
}

// Turn runs the agent once with a prompt, in the session that it had before or a new one, and answers what it printed.
func (p Pi) Turn(ctx context.Context, goOn bool, prompt string) ([]byte, error) {
	program, err := installed("clients", "clients/node/node_modules/.bin/pi")
	if err != nil {
		return nil, err
	}
	base := p.Base + "/v1"
	if p.API == "anthropic-messages" {
		base = p.Base
	}
	settings := Body{"providers": Body{"local": Body{"baseUrl": base, "api": p.API, "apiKey": "sk-local", "models": []Body{{
		"id": p.Model, "name": p.Model, "reasoning": false, "input": []string{"text"}, "contextWindow": 128000, "maxTokens": p.MaxTokens,
		"cost": Body{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
	}}}}}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("settings of pi: %w", err)
	}
	dir := filepath.Join(p.Home, ".pi", "agent")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("settings of pi: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "models.json"), text, 0o600); err != nil {
		return nil, fmt.Errorf("settings of pi: %w", err)
	}
	args := []string{program, "--offline", "--provider", "local", "--model", p.Model}
	if goOn {
		args = append(args, "-c")
	}
	return Script{Home: p.Home, Args: append(args, "-p", prompt)}.Run(ctx)
}
