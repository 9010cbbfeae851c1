//go:build !linux

package e2e

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, kill bool) error {
	if kill {
		return cmd.Process.Kill()
	}
	return cmd.Process.Signal(os.Interrupt)
}
