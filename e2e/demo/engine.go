package demo

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/warmring/warmring/engines/sim"
)

// runEngine is demo -engine: one simulated engine of the default size and speed, on an address of the caller's choice, until
// ctx ends. It is what a deployment can be tried with where there is no GPU.
func runEngine(ctx context.Context, address string, stdout io.Writer) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the simulated engine: %w", err)
	}
	s := sim.NewServer(sim.ServerOptions{Models: []string{modelName}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	fmt.Fprintf(stdout, "simulated engine on %s, model %q; it computes no language, and anyone who reaches it can make it fail (/sim/fault)\n", ln.Addr(), modelName)
	select {
	case err = <-served:
		s.Close()
	case <-ctx.Done():
		s.Close()
		err = <-served
	}
	return err
}
