package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// LaneTraffic is what lanes are for: long cold prompts that come back to back, and sessions that take short warm turns all
// the while. The same traffic with another salt has the same sizes and shares no text.
type LaneTraffic struct {
	Base  string // URL without a slash at the end
	Model string
	Salt  string // at the very beginning of each prompt

	Longs    int           // cold prompts in all
	Tokens   int           // of each
	AtOnce   int           // how many of them are under way at a time, the next following at the end of one
	Sessions int           // with short turns
	Every    time.Duration // from the beginning of one turn of a session to the next, give or take a quarter, if that has ended by then
	History  int           // tokens of a session's first prompt, about

	TokensPerWord float64 // of Words, by this model; 0 = is asked
}

// LaneRun is how a LaneTraffic went.
type LaneRun struct {
	Alone     []time.Duration // times to first token of short warm turns before the first long prompt
	AloneAll  []time.Duration // until their last token
	Short     []time.Duration // of those that began while long prompts were under way
	Whole     []time.Duration // until their last token
	Long      []time.Duration // times to first token of long prompts
	Took      time.Duration   // from the first long prompt to the end of the last one
	Tokens    int             // of a long prompt, as the engine counts them
	Preempted int             // times that long prompts were taken back, as their answers tell
	Slices    int             // in which long prompts were sent before they went whole, as their answers tell
}

// ShortAt is a quantile of the short turns' times to first token.
func (r *LaneRun) ShortAt(q float64) time.Duration { return Quantile(r.Short, q) }

// LaneVariants are the ways through the proxy that are compared, by what its configuration says.
func LaneVariants() []LaneVariant {
	return []LaneVariant{
		{"lanes off", "lanes.off = true\n", ""},
		{"hold only", "", "preempt = \"no\"\n"},
		{"aborts", "lanes.slices = false\n", ""},
		{"lanes on", "", ""},
	}
}

// LaneVariant is one of them.
type LaneVariant struct {
	Name     string
	Settings string // top level of the configuration
	Engine   string // more of an engine's table
}

// laneOutput is how many tokens are asked for.
const laneOutput = 8

// laneLimit bounds a run: several times what the slowest engine takes.
const laneLimit = 10 * time.Minute

// Run the traffic to its end. An answer that is not whole, or not the only one, is an error.
func (l LaneTraffic) Run(ctx context.Context) (*LaneRun, error) {
	ctx, cancel := context.WithTimeout(ctx, laneLimit)
	defer cancel()
	if l.TokensPerWord == 0 {
		var err error
		if l.TokensPerWord, err = l.measureWords(ctx); err != nil {
			return nil, err
		}
	}
	run := &LaneRun{}
	sessions := make([]*laneSession, l.Sessions)
	for i := range sessions {
		sessions[i] = l.session(i)
		for turn := range 3 { // the first one fills the cache, the others show how fast a warm one is
			first, total, err := l.turn(ctx, sessions[i])
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				run.Alone, run.AloneAll = append(run.Alone, first), append(run.AloneAll, total)
			}
		}
	}
	short, end := context.WithCancel(ctx)
	defer end()
	var mu sync.Mutex
	var failed []error
	var turns, longs sync.WaitGroup
	for i, s := range sessions {
		turns.Go(func() {
			next := time.NewTimer(l.Every * time.Duration(i) / time.Duration(l.Sessions)) // they do not come all at once
			defer next.Stop()
			for {
				select {
				case <-short.Done():
					return
				case <-next.C:
				}
				next.Reset(l.Every*3/4 + time.Duration(s.random.Int64N(int64(l.Every/2)+1))) // they do not stay in step
				first, total, err := l.turn(ctx, s)
				mu.Lock()
				run.Short, run.Whole = append(run.Short, first), append(run.Whole, total)
				if err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	begin := time.Now()
	numbers := make(chan int, l.Longs)
	for n := range l.Longs {
		numbers <- n
	}
	close(numbers)
	for range max(l.AtOnce, 1) {
		longs.Go(func() {
			for n := range numbers {
				a, err := l.long(ctx, n)
				mu.Lock()
				if err != nil {
					failed = append(failed, err)
				} else {
					run.Long = append(run.Long, a.First)
					run.Tokens = a.Prompt
					times, _ := strconv.Atoi(a.Header.Get("x-warmring-preempted"))
					run.Preempted += times
					times, _ = strconv.Atoi(a.Header.Get("x-warmring-slices"))
					run.Slices += times
				}
				mu.Unlock()
			}
		})
	}
	longs.Wait()
	run.Took = time.Since(begin)
	end()
	turns.Wait()
	return run, errors.Join(failed...)
}

// laneSession is a conversation that grows by a turn at a time.
type laneSession struct {
	id      string
	random  *rand.Rand
	history []Message
}

func (l LaneTraffic) session(i int) *laneSession {
	random := rand.New(rand.NewPCG(11, uint64(i)))
	return &laneSession{
		id: fmt.Sprintf("%s-short-%d", l.Salt, i), random: random,
		history: []Message{{"system", fmt.Sprintf("%s, session %d. You are a careful agent.", l.Salt, i)}, {"user", l.words(random, l.History)}},
	}
}

func (l LaneTraffic) words(random *rand.Rand, tokens int) string {
	return words(random, int(float64(tokens)/l.TokensPerWord))
}

// turn takes a session's next turn and answers the times to its first and last token.
func (l LaneTraffic) turn(ctx context.Context, s *laneSession) (first, total time.Duration, err error) {
	a, err := l.ask(ctx, s.id, s.history)
	if err != nil {
		return 0, 0, fmt.Errorf("short turn of %s: %w", s.id, err)
	}
	s.history = append(s.history, Message{"assistant", words(s.random, 8)}, Message{"user", words(s.random, 24)})
	return a.First, a.Total, nil
}

func (l LaneTraffic) long(ctx context.Context, n int) (*Answer, error) {
	random := rand.New(rand.NewPCG(13, uint64(n)))
	text := fmt.Sprintf("%s, long prompt %d. ", l.Salt, n) + l.words(random, l.Tokens)
	a, err := l.ask(ctx, fmt.Sprintf("%s-long-%d", l.Salt, n), []Message{{"user", text}})
	if err != nil {
		return nil, fmt.Errorf("long prompt %d: %w", n, err)
	}
	return a, nil
}

func (l LaneTraffic) ask(ctx context.Context, session string, messages []Message) (*Answer, error) {
	body := Body{
		"model": l.Model, "messages": messages, "max_tokens": laneOutput, "temperature": 0, "ignore_eos": true, "stream": true,
		"stream_options": Body{"include_usage": true},
	}
	a, err := Client{Base: l.Base}.Ask(ctx, Chat, body, map[string]string{"x-session-id": session})
	if err != nil {
		return nil, err
	}
	return a, whole(a)
}

// whole tells what is wrong with a streamed chat that should have come whole and once.
func whole(a *Answer) error {
	ends := bytes.Count(a.Body, []byte("data: [DONE]"))
	roles := bytes.Count(a.Body, []byte(`"role":"assistant"`))
	switch {
	case a.Status != 200:
		return fmt.Errorf("status %d: %.300s", a.Status, a.Body)
	case a.Failure != "":
		return fmt.Errorf("an error in the stream: %s", a.Failure)
	case ends != 1 || !a.Finished:
		return fmt.Errorf("%d ends of the stream", ends)
	case bytes.Contains(a.Body, []byte(`"finish_reason":"abort"`)):
		return errors.New("the answer to an abort came through")
	case a.Output >= 0 && a.Output != laneOutput:
		return fmt.Errorf("%d tokens of %d, %d roles", a.Output, laneOutput, roles)
	}
	return nil
}

// measureWords finds out how many tokens a word has for this model.
func (l LaneTraffic) measureWords(ctx context.Context) (float64, error) {
	const n = 400
	text := l.Salt + words(rand.New(rand.NewPCG(17, 1)), n)
	a, err := Client{Base: l.Base}.Ask(ctx, Completions, Body{"model": l.Model, "prompt": text, "max_tokens": 1}, nil)
	if err != nil {
		return 0, err
	}
	if a.Status != 200 || a.Prompt < n/2 {
		return 0, fmt.Errorf("how long is a word: status %d, %d tokens, %.200s", a.Status, a.Prompt, a.Body)
	}
	return float64(a.Prompt) / n, nil
}

// Quantile of durations, by rank; 0 of none.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Clone(all)
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
