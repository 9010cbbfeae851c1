package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// One of three engines is killed (as kill -9 does) in the middle of work. What had not been answered with a single token is
// answered by another; what had been gets an error and a broken end, never a clean one.
func TestOneOfThreeEnginesIsKilled(t *testing.T) { // C044, C081
	engines := llamas(t, 3, 4)
	w := proxy(t, "", engines...)
	const sessions, turns = 9, 6
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var (
		mu                   sync.Mutex
		whole, broken, moved int
		killed               = make(chan struct{})
	)
	var playing sync.WaitGroup
	for n := range sessions {
		playing.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(n)))
			history := []Message{{"system", "Answer at length."}, {"user", fmt.Sprintf("Task %d. %s", n, words(random, 80))}}
			home := ""
			for turn := range turns {
				body := Body{"model": engines[0].Model, "messages": history, "max_tokens": 250, "ignore_eos": true, "stream": true}
				a, err := Client{Base: w.URL}.Ask(ctx, Chat, body, nil)
				mu.Lock()
				switch {
				case err == nil && a.Status == http.StatusOK && a.Finished && a.Failure == "":
					whole++
				case a != nil && a.Status == http.StatusOK && a.Events > 0 && err != nil && a.Failure != "":
					broken++ // it had begun, was told of the error, and its end was broken
					select {
					case <-killed:
					default:
						t.Errorf("session %d turn %d broke before any engine was killed: %v %s", n, turn+1, err, a.Failure)
					}
				default:
					t.Errorf("session %d turn %d was lost: %v %+v", n, turn+1, err, a)
				}
				if a != nil && home != "" && a.Engine() != home {
					moved++
				}
				if a != nil {
					home = a.Engine()
				}
				mu.Unlock()
				history = append(history, Message{"assistant", words(random, 20)}, Message{"user", words(random, 20)})
			}
		})
	}
	await(t, time.Minute, "a third of the work", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return whole >= sessions*turns/3
	})
	// One more answer, far too long to end by itself: the engine that writes it is the one to be killed.
	victim := make(chan string, 1)
	writer := Client{Base: w.URL, Began: func(a *Answer) { victim <- a.Engine() }}
	type end struct {
		answer *Answer
		err    error
	}
	story := make(chan end, 1)
	go func() {
		a, err := writer.Ask(ctx, Chat, Body{"model": engines[0].Model, "messages": []Message{{"user", "A story without an end."}}, "max_tokens": 20000, "ignore_eos": true, "stream": true}, nil)
		story <- end{a, err}
	}()
	select {
	case name := <-victim:
		close(killed)
		engines[name[0]-'a'].Kill()
	case e := <-story:
		t.Fatalf("the endless story did not begin: %v %+v", e.err, e.answer)
	}
	begin := time.Now()
	e := <-story
	if e.err == nil || e.answer == nil || e.answer.Failure == "" || e.answer.Finished {
		t.Errorf("the story's engine was killed, but its end was: %v %+v", e.err, e.answer)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the story's reader was told %v after the kill", took)
	}
	playing.Wait()
	t.Logf("%d turns whole, %d and the story broken after their first token, %d changed engine", whole, broken, moved)
	if whole+broken != sessions*turns {
		t.Errorf("%d turns accounted for, want %d", whole+broken, sessions*turns)
	}
	if broken > sessions {
		t.Errorf("%d turns broken, more than can have been on the engine", broken)
	}
	if err := w.Idle(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
}
