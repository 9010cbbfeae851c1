package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// clustered starts n proxies in one cluster before the engines.
func clustered(t *testing.T, n int, engines ...*Engine) []*Warmring {
	t.Helper()
	var all []*Warmring
	join := ""
	for i := range n {
		port := clusterPort(t)
		table := fmt.Sprintf("[cluster]\nbind = \"127.0.0.1:%d\"\nnode = \"proxy-%d\"\njoin = [%s]\n", port, i, join)
		all = append(all, proxyAs(t, Proxy{Tables: table}, 5*time.Second, engines...))
		if i == 0 {
			join = fmt.Sprintf("\"127.0.0.1:%d\"", port)
		}
	}
	agree(t, all)
	return all
}

// clusterPort is free for TCP and UDP.
func clusterPort(t *testing.T) int {
	t.Helper()
	for range 20 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = u.Close()
			return port
		}
	}
	t.Fatal("no port is free for both TCP and UDP")
	return 0
}

// agree waits until all proxies see each other and know the same.
func agree(t *testing.T, all []*Warmring) {
	t.Helper()
	await(t, time.Minute, "all proxies to know the same", func() bool {
		digest := ""
		for _, w := range all {
			resp, err := http.Get(w.Admin + "/api/cluster")
			if err != nil {
				return false
			}
			var v struct {
				Ready   bool
				Digest  string
				Untold  int
				Members []struct{}
			}
			err = json.NewDecoder(resp.Body).Decode(&v)
			_ = resp.Body.Close()
			if err != nil || !v.Ready || v.Untold > 0 || len(v.Members) != len(all)-1 || digest != "" && v.Digest != digest {
				return false
			}
			digest = v.Digest
		}
		return true
	})
}

// hop plays a story in rounds: all sessions take a turn, each at a proxy picked by chance, and the next when all proxies have heard of
// all of them.
func hop(t *testing.T, proxies []*Warmring, model string, story Story) (all []played) {
	t.Helper()
	sessions := story.Write()
	random := rand.New(rand.NewPCG(3, 4))
	for turn := range story.Turns {
		var mu sync.Mutex
		var round sync.WaitGroup
		for _, s := range sessions {
			client := Client{Base: proxies[random.IntN(len(proxies))].URL}
			round.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				a, err := client.Ask(ctx, Chat, Body{"model": model, "messages": s.Prompts[turn], "max_tokens": 4, "temperature": 0, "ignore_eos": true}, nil)
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("%s turn %d: %+v %v", s.ID, turn+1, a, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, played{s, turn + 1, a})
			})
		}
		round.Wait()
		if t.Failed() {
			t.FailNow()
		}
		if len(proxies) > 1 {
			agree(t, proxies)
		}
	}
	return all
}

// Sessions without ids go through either of two proxies, and find as much in the engines' caches as through one.
func TestTwoProxiesKeepVLLMsAsWarmAsOne(t *testing.T) {
	engines := twoVLLMs(t)
	story := Story{Sessions: 12, Turns: 8, System: 300, First: 250, More: 50}
	var share [2]float64
	for i, n := range []int{1, 2} {
		story.Salt = fmt.Sprintf("hops%d", n)
		proxies := []*Warmring{proxy(t, "", engines...)}
		if n > 1 {
			proxies = clustered(t, n, engines...)
		}
		all := hop(t, proxies, engines[0].Model, story)
		share[i] = cachedShare(all)
		t.Logf("%d proxies: %.2f %% of %d turns' prompt tokens cached", n, 100*share[i], len(all))
		stayed(t, all, len(engines))
	}
	if share[1] < share[0]-0.01 {
		t.Errorf("two proxies: %.2f %% of the prompt tokens were cached, one proxy: %.2f %%", 100*share[1], 100*share[0])
	}
}
