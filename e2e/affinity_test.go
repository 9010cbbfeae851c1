package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// played is one turn of a session and what came of it.
type played struct {
	session *Session
	turn    int // from 1
	answer  *Answer
}

// play holds all sessions of a story at once, each turn after the one before; a fork begins when its parent's turn has ended.
// With ids each session tells who it is, and a fork whose child it is.
func play(t *testing.T, client Client, model string, sessions []*Session, ids bool) []played {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	client.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(sessions)}}
	defer client.HTTP.CloseIdleConnections()
	ended := map[*Session][]chan struct{}{}
	for _, s := range sessions {
		for range s.Prompts {
			ended[s] = append(ended[s], make(chan struct{}))
		}
	}
	var (
		mu      sync.Mutex
		all     []played
		playing sync.WaitGroup
	)
	for _, s := range sessions {
		playing.Go(func() {
			if s.Parent != nil {
				<-ended[s.Parent][s.From-1]
			}
			header := map[string]string{}
			if ids {
				header["x-warmring-session"] = s.ID
				if s.Parent != nil {
					header["x-warmring-parent"] = s.Parent.ID
				}
			}
			for i, prompt := range s.Prompts {
				body := Body{"model": model, "messages": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": true}
				if i%2 == 1 {
					body = body.With(Body{"stream": true, "stream_options": Body{"include_usage": true}})
				}
				a, err := client.Ask(ctx, Chat, body, header)
				close(ended[s][i])
				switch {
				case err != nil:
					t.Errorf("%s turn %d: %v", s.ID, i+1, err)
				case a.Status != http.StatusOK || !a.Finished || a.Failure != "":
					t.Errorf("%s turn %d: status %d, finished %v, failure %q: %.300s", s.ID, i+1, a.Status, a.Finished, a.Failure, a.Body)
				case a.Prompt < 1 || a.Cached < 0:
					t.Errorf("%s turn %d: no usage in %.300s", s.ID, i+1, a.Body)
				default:
					mu.Lock()
					all = append(all, played{s, i + 1, a})
					mu.Unlock()
					continue
				}
				for _, later := range ended[s][i+1:] { // let forks of later turns go on and fail for themselves
					close(later)
				}
				return
			}
		})
	}
	playing.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// cachedShare of all prompt tokens.
func cachedShare(all []played) float64 {
	var cached, prompt int
	for _, p := range all {
		cached += p.answer.Cached
		prompt += p.answer.Prompt
	}
	return float64(cached) / float64(prompt)
}

// firsts are the times to the first event of all turns but the first of each session.
func firsts(all []played) (times []time.Duration) {
	for _, p := range all {
		if p.turn > 1 {
			times = append(times, p.answer.First)
		}
	}
	return times
}

// stayed checks that at least 99 % of the turns ran on their session's engine: that of the session's first turn, or for a
// fork that of its parent; and that the sessions are spread over the engines.
func stayed(t *testing.T, all []played, engines int) {
	t.Helper()
	home := map[*Session]string{}
	for _, p := range all {
		if p.turn == 1 && p.session.Parent == nil {
			home[p.session] = p.answer.Engine()
		}
	}
	var here, forked, forksHere int
	sessions, turns := map[string]int{}, map[string]int{}
	for s, engine := range home {
		if engine == "" {
			t.Errorf("%s: the answer does not name its engine", s.ID)
		}
		sessions[engine]++
	}
	for _, p := range all {
		root, engine := p.session, p.answer.Engine()
		turns[engine]++
		if root.Parent != nil {
			root = root.Parent
			forked++
			if engine == home[root] {
				forksHere++
			}
		}
		if engine == home[root] {
			here++
		} else {
			t.Logf("%s turn %d ran on %q, its session lives on %q (%s, warm %s)", p.session.ID, p.turn, engine, home[root],
				p.answer.Header.Get("x-warmring-reason"), p.answer.Header.Get("x-warmring-warm"))
		}
	}
	t.Logf("%d of %d turns on their session's engine, forks %d of %d; sessions %v, turns %v", here, len(all), forksHere, forked, sessions, turns)
	if float64(here) < 0.99*float64(len(all)) {
		t.Errorf("only %d of %d turns ran on their session's engine", here, len(all))
	}
	if len(turns) != engines {
		t.Errorf("turns ran on %v, want all %d engines used", turns, engines)
	}
	for engine, n := range turns {
		if mean := float64(len(all)) / float64(engines); float64(n) > 1.5*mean {
			t.Errorf("engine %s got %d turns, more than half again the mean %.0f", engine, n, mean)
		}
	}
}

// Two engines together must find as much of the prompts in their caches as one that has room for all of it.
func TestSessionsStayOnTheirWarmVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	story := Story{Sessions: 12, Turns: 10, Forks: 3, System: 400, First: 300, More: 60}

	story.Salt = "alone"
	alone := play(t, Client{Base: engines[0].URL}, engines[0].Model, story.Write(), false)
	t.Logf("one vLLM alone: %.2f %% of %d turns' prompt tokens cached; first event P50 %v P90 %v", 100*cachedShare(alone), len(alone),
		quantile(firsts(alone), 0.5).Round(time.Millisecond), quantile(firsts(alone), 0.9).Round(time.Millisecond))

	for _, c := range []struct {
		name string
		ids  bool
	}{{"without ids", false}, {"with ids", true}} {
		t.Run(c.name, func(t *testing.T) {
			story.Salt = fmt.Sprintf("ids%v", c.ids)
			all := play(t, Client{Base: w.URL}, engines[0].Model, story.Write(), c.ids)
			t.Logf("two vLLM behind warmring: %.2f %% cached; first event P50 %v P90 %v", 100*cachedShare(all),
				quantile(firsts(all), 0.5).Round(time.Millisecond), quantile(firsts(all), 0.9).Round(time.Millisecond))
			stayed(t, all, 2)
			if got, want := cachedShare(all), cachedShare(alone); got < want-0.02 {
				t.Errorf("%.2f %% of the prompt tokens were cached, one engine has %.2f %%", 100*got, 100*want)
			}
			if err := w.Idle(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
			if c.ids {
				keysAreTheSessions(t, all)
			}
		})
	}
}

// keysAreTheSessions checks that the key which the proxy tells is one for all turns of a session and no other session's.
func keysAreTheSessions(t *testing.T, all []played) {
	t.Helper()
	owner, key := map[string]*Session{}, map[*Session]string{}
	for _, p := range all {
		k := p.answer.Header.Get("x-warmring-session")
		if len(k) != 16 {
			t.Errorf("%s turn %d: session key %q is not 16 hex digits", p.session.ID, p.turn, k)
		}
		if o := owner[k]; o != nil && o != p.session {
			t.Errorf("%s has the key of %s", p.session.ID, o.ID)
		}
		if was := key[p.session]; was != "" && was != k {
			t.Errorf("%s turn %d: the key changed from %s to %s", p.session.ID, p.turn, was, k)
		}
		owner[k], key[p.session] = p.session, k
	}
}

// llama.cpp stands for an engine of the user's own: it is neither vLLM nor SGLang, and keeps one prompt per slot.
func TestSessionsStayOnTheirWarmLlamaCPP(t *testing.T) {
	engines := llamas(t, 2, 6)
	w := proxy(t, "", engines...)
	story := Story{Sessions: 6, Turns: 5, Forks: 0, System: 200, First: 100, More: 40}
	for _, ids := range []bool{false, true} {
		t.Run(fmt.Sprintf("ids %v", ids), func(t *testing.T) {
			story.Salt = fmt.Sprintf("llama%v", ids)
			all := play(t, Client{Base: w.URL}, engines[0].Model, story.Write(), ids)
			t.Logf("two llama.cpp behind warmring: %.2f %% cached; first event P50 %v", 100*cachedShare(all), quantile(firsts(all), 0.5).Round(time.Millisecond))
			stayed(t, all, 2)
			if err := w.Idle(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
		})
	}
}
