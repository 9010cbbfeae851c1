package engines

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A proxy serves once all engines are settled. By then whoever places turns has heard of each: a session would be taken from an
// engine that is ready, and not known as such yet.
func TestSettledEnginesHaveBeenAnnounced(t *testing.T) {
	e := newFake(t).plain()
	announcing, settled := make(chan struct{}), make(chan struct{})
	var first sync.Once
	f, err := NewFleet([]Spec{{Name: "e", URL: e.URL}}, FleetOptions{OnChange: func(*Engine, Change) {
		first.Do(func() {
			close(announcing)
			select {
			case <-settled:
				t.Error("settled before the change was announced")
			case <-time.After(100 * time.Millisecond): // for a wrong order to show; a right one never does
			}
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer stop()
	if err := f.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	close(settled)
	<-announcing
}
