package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cores are the two sides of a measurement: the proxy alone on one core, client and fakes on the others. Both are empty
// where there is one core only, or no way to pin.
type cores struct{ proxy, others []int }

func divideCores() cores {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || set.Count() < 2 {
		return cores{}
	}
	var all []int
	for i := range 1024 {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return cores{all[:1], all[1:]}
}

// pinSelf moves every thread of this process to the given cores; threads to come inherit it.
func pinSelf(to []int) error {
	if len(to) == 0 {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	set := cpuSet(to)
	for _, t := range threads {
		id, _ := strconv.Atoi(t.Name())
		if err := unix.SchedSetaffinity(id, set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin to cores %v: %w", to, err)
		}
	}
	runtime.GOMAXPROCS(len(to))
	return nil
}

// startOn starts cmd on the given cores: it inherits them from the thread that starts it. The child ends with that
// thread, so it must be called on a goroutine that is locked to its thread and stays until the child has ended.
func startOn(cmd *exec.Cmd, on []int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if len(on) == 0 {
		return cmd.Start()
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, cpuSet(on)); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return cmd.Start()
}

func cpuSet(list []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, c := range list {
		set.Set(c)
	}
	return &set
}

func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

// machine names the processor for the head of the table.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return fmt.Sprintf("%d × %s", runtime.NumCPU(), strings.TrimSpace(value))
		}
	}
	return fmt.Sprintf("%d cores %s", runtime.NumCPU(), runtime.GOARCH)
}
