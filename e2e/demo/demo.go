// Package demo shows the proxy at work on simulated engines.
package demo

import (
	"context"
	"fmt"
	"io"
)

// Run is the demo command.
func Run(_ context.Context, _ []string, _, stderr io.Writer) int {
	fmt.Fprintln(stderr, "warmring demo: not built yet")
	return 1
}
