//go:build !linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Elsewhere the bench compiles and its client runs, but nothing is pinned and no usage is read: figures need Linux.

type cores struct{ proxy, others []int }

func divideCores() cores                   { return cores{} }
func pinSelf([]int) error                  { return nil }
func startOn(cmd *exec.Cmd, _ []int) error { return cmd.Start() }
func signalGroup(pid int, sig syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
func machine() string {
	return fmt.Sprintf("%d cores %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}
