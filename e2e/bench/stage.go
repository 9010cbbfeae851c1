package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// stage holds what a scenario has started: each fake and each peer is a process of its own on a loopback port, ended with
// its children when the stage closes, or when the bench itself is killed.
type stage struct {
	dir     string // for logs and configuration files
	cores   cores
	running []*process
	fakes   []string // their addresses
}

type process struct {
	label string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// start runs a program on the given cores, its output in a log file.
func (s *stage) start(name string, on []int, env []string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{label: name, cmd: exec.Command(args[0], args[1:]...), log: log.Name(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, s.dir
	p.cmd.Env = append(os.Environ(), env...)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see startOn
		defer runtime.UnlockOSThread()
		defer log.Close()
		defer close(p.ended)
		err := startOn(p.cmd, on)
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.running = append(s.running, p)
	return p, nil
}

// stop ends a process and its children: politely, and after three seconds not.
func (s *stage) stop(p *process) {
	signalGroup(p.pid(), syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
	}
	signalGroup(p.pid(), syscall.SIGKILL)
	<-p.ended
}

func (s *stage) close() {
	for i := len(s.running) - 1; i >= 0; i-- {
		s.stop(s.running[i])
	}
	s.running, s.fakes = nil, nil
}

// startFakes starts n engines and waits for them.
func (s *stage) startFakes(n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range n {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		p, err := s.start(fmt.Sprintf("fake-%d", i), s.cores.others, nil, self, "fake", "-listen", address, "-number", strconv.Itoa(i))
		if err != nil {
			return err
		}
		s.fakes = append(s.fakes, address)
		if err := p.await(10*time.Second, func() error { _, err := get(address + "/v1/models"); return err }); err != nil {
			return err
		}
	}
	return nil
}

// tell turns the knobs of all fakes, or makes them release their streams.
func (s *stage) tell(what string) {
	for _, f := range s.fakes {
		if _, err := get(f + "/ctl/" + what); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// await tries until try succeeds; it fails when time is up or the process has ended.
func (p *process) await(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended; its log is %s", p.label, p.log)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s was not ready after %v: %w; its log is %s", p.label, limit, err, p.log)
		}
	}
}

// freeAddress is a loopback address that nobody listens on right now.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err == nil && answer.StatusCode != 200 {
		err = errors.New(answer.Status)
	}
	return body, err
}
