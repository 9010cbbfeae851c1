package e2e

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command the leader of its own process group, so that what it starts can be ended with it, and lets
// the kernel end it when the thread that started it dies (a test binary killed by a time-out runs no clean-up).
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func signalGroup(cmd *exec.Cmd, kill bool) error {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	return syscall.Kill(-cmd.Process.Pid, signal)
}
