package sim

import (
	"fmt"
	"testing"
	"time"
)

// Two engines and a person who sends a turn a second after each answer: the whole minute runs in no
// time, twice alike.
func TestATimelineRunsManyEnginesInVirtualTime(t *testing.T) {
	play := func() string {
		var line Timeline
		var story string
		var stations [2]*Station
		turn := func(now int64, engine, n int) {
			p := HashTokens(0, 16, words(engine, 1000*n))
			if err := stations[engine].Submit(Request{ID: fmt.Sprint("turn ", n), Prompt: p, MaxTokens: 10}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range stations {
			n := 1
			stations[i] = line.Add(NewCore(Options{Cost: Cost{Base: 0.01, Prefill: 1e-3}}), func(now int64, e Event) {
				if e.Kind == FirstToken {
					story += fmt.Sprintf("%v engine %d %s cached %d\n", time.Duration(now), i, e.ID, e.Cached)
				}
				if e.Kind == Finished && n < 4 {
					n++
					line.At(now+int64(time.Second), func(now int64) { turn(now, i, n) })
				}
			})
			line.At(int64(i)*int64(300*time.Millisecond), func(now int64) { turn(now, i, 1) })
		}
		line.Run(int64(time.Minute))
		if _, ok := line.NextEvent(); ok {
			t.Error("something is left to happen")
		}
		return story
	}
	first := play()
	want := "1.01s engine 0 turn 1 cached 0\n1.31s engine 1 turn 1 cached 0\n3.118s engine 0 turn 2 cached 992\n"
	if len(first) < len(want) || first[:len(want)] != want {
		t.Errorf("got\n%s", first)
	}
	if second := play(); second != first {
		t.Errorf("not reproducible:\n%s\n%s", first, second)
	}
}

func TestATimelineAborts(t *testing.T) {
	var line Timeline
	var at time.Duration
	station := line.Add(NewCore(Options{MaxBatchedTokens: 100, Cost: Cost{Prefill: 1e-3}}), func(now int64, e Event) {
		if e.Kind == Aborted {
			at = time.Duration(now)
		}
	})
	station.Submit(Request{ID: "a", Prompt: HashTokens(0, 16, words(1, 1000))})
	line.At(int64(250*time.Millisecond), func(int64) { station.Abort("a") })
	line.Run(int64(time.Minute))
	if at != 300*time.Millisecond {
		t.Errorf("aborted at %v, want the end of the third step", at)
	}
}

func TestAnEngineKeepsRealTime(t *testing.T) {
	e := NewEngine(Options{Cost: Cost{Base: 0.1}}, 10)
	defer e.Close()
	signal := make(chan struct{}, 1)
	began := time.Now()
	r, err := e.Submit(Request{ID: "a", Prompt: HashTokens(0, 16, words(1, 10)), MaxTokens: 20}, signal)
	if err != nil {
		t.Fatal(err)
	}
	for !r.Progress().Over() {
		<-signal
	}
	if took := time.Since(began); took < 190*time.Millisecond || took > 10*time.Second {
		t.Errorf("20 steps of 100 ms at speed 10 took %v", took)
	}
	// A restart ends what runs.
	r, _ = e.Submit(Request{ID: "b", Prompt: HashTokens(0, 16, words(1, 10)), MaxTokens: 20_000}, signal)
	e.Restart()
	for !r.Progress().Over() {
		<-signal
	}
	if !r.Progress().Aborted || e.Stats().Stored != 0 {
		t.Errorf("%+v %+v", r.Progress(), e.Stats())
	}
}
