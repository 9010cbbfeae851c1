//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// ownGroup makes the command the leader of its own process group, so that what it starts can be ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(cmd *exec.Cmd, kill bool) error {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	return syscall.Kill(-cmd.Process.Pid, signal)
}

// guard ends a group when this process is gone: a test binary that is killed, or that panics at its time limit, runs no
// clean-up. A shell waits for the end of a pipe whose other side only this process holds. Dismiss it when the group has ended.
func guard(leader int) (dismiss func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	shell := exec.Command("sh", "-c", `read -r _; kill -9 "-$1" 2>/dev/null`, "guard", strconv.Itoa(leader))
	shell.Stdin = read
	ownGroup(shell)
	if err := shell.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		write.Close()
	}, nil
}
