package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/warmring/warmring/e2e/ports"
)

// Process is one running program with its whole process group and all it printed, kept in a file.
//
// It is running from StartProcess on; it has ended when Ended is closed, by itself or by Stop, Kill or Terminate.
type Process struct {
	Name string // how errors call it
	Log  string // path of the file with its standard output and error together

	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait; read only after ended is closed
	stop  sync.Once

	dismiss func() // the guard, which ends the group if this process dies first
}

// Command describes a program to start.
type Command struct {
	Name string   // for errors and for the log file's name
	Args []string // program and arguments
	Dir  string   // working directory; "" = this process's
	Env  []string // the whole environment; nil = this process's
	Logs string   // folder for the log file
}

// StartProcess starts a program in a process group of its own. The caller must Stop it.
func StartProcess(c Command) (*Process, error) {
	log, err := os.CreateTemp(c.Logs, strings.ReplaceAll(c.Name, string(filepath.Separator), "-")+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("log file of %s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, Log: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.Command(c.Args[0], c.Args[1:]...)
	p.cmd.Dir, p.cmd.Env = c.Dir, c.Env
	p.cmd.Stdout, p.cmd.Stderr = log, log
	ownGroup(p.cmd)
	err = p.cmd.Start()
	log.Close() // the program has its own
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if p.dismiss, err = guard(p.Pid()); err != nil {
		p.Kill()
		return nil, fmt.Errorf("guard of %s: %w", c.Name, err)
	}
	return p, nil
}

// Pid of the group's leader.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Terminate asks the group to end and returns at once.
func (p *Process) Terminate() error { return signalGroup(p.cmd, false) }

// Kill ends the whole group at once, as kill -9 does, and waits until the leader is gone.
func (p *Process) Kill() {
	_ = signalGroup(p.cmd, true)
	<-p.ended
}

// Wait until the program has ended, for at most d; its exit error, if any.
func (p *Process) Wait(d time.Duration) error {
	select {
	case <-p.ended:
		return p.err
	case <-time.After(d):
		return fmt.Errorf("%s still runs after %v", p.Name, d)
	}
}

// Stop ends the whole group: politely, and after ten seconds not. It may be called again.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.Terminate()
		_ = p.Wait(10 * time.Second)
		p.Kill() // whatever children are left; the group is gone otherwise
		p.dismiss()
	})
}

// Tail of what the program printed: the last n lines, for error messages.
func (p *Process) Tail(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// await polls ready until it is true. It gives up early when the program ends, and says what it printed last.
func (p *Process) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended (%v) before it was ready; it printed last:\n%s", p.Name, p.err, p.Tail(40))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v (%w); it printed last:\n%s", p.Name, time.Since(begin).Round(time.Second), err, p.Tail(40))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// FreePort is a loopback port that nobody listens on now.
func FreePort() (int, error) {
	return ports.Free()
}

// Home is the folder below which the script install keeps the real engines and clients.
func Home() string {
	if dir := os.Getenv("WARMRING_E2E_HOME"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "warmring-e2e")
}

// ErrAbsent means that a real part is not installed on this machine.
var ErrAbsent = errors.New("not installed")

// installed is the path of a file below Home, or ErrAbsent with the command that brings it.
func installed(part, file string) (string, error) {
	for _, name := range []string{filepath.Join("stamps", part), file} {
		if _, err := os.Stat(filepath.Join(Home(), name)); err != nil {
			return "", fmt.Errorf("real part %s: %w; run e2e/install %s", part, ErrAbsent, part)
		}
	}
	return filepath.Join(Home(), file), nil
}

// root is the module's folder: the nearest one upward that holds a go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("find the module: no go.mod in this folder or above")
		}
		dir = filepath.Dir(dir)
	}
}
