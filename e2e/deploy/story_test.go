package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// get asks a proxy's admin listener.
func (tp *topology) get(proxy, path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+tp.hosts[proxy+":8081"]+path, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s%s: %d %s", proxy, path, resp.StatusCode, body)
	case into != nil:
		return json.Unmarshal(body, into)
	}
	return nil
}

type clusterView struct {
	Ready, Alone, Encrypted bool
	Digest                  string
	Untold                  int
	Members                 []struct {
		Name    string
		Differs []string
	}
}

// knows is nil when a proxy has all n-1 others as members, and none of them differs.
func (tp *topology) knows(proxy string, n int) error {
	var v clusterView
	if err := tp.get(proxy, "/api/cluster", &v); err != nil {
		return err
	}
	for _, m := range v.Members {
		if len(m.Differs) > 0 {
			return fmt.Errorf("%s finds that %s differs: %v", proxy, m.Name, m.Differs)
		}
	}
	if !v.Encrypted || len(v.Members) != n-1 {
		return fmt.Errorf("%s: encrypted %v, members %v", proxy, v.Encrypted, v.Members)
	}
	return nil
}

// sees is nil when all engines are ready for a proxy.
func (tp *topology) sees(proxy string) error {
	var engines []struct{ Name, State string }
	if err := tp.get(proxy, "/api/engines", &engines); err != nil {
		return err
	}
	for _, e := range engines {
		if e.State != "ready" {
			return fmt.Errorf("%s: %s is %s", proxy, e.Name, e.State)
		}
	}
	return nil
}

// talk is a session that goes on and on, one turn after another, through whichever proxy the balancer picks.
type talk struct {
	id      string
	stream  bool // long streamed answers, some of which a restart falls into; else short whole ones
	history []string
	engine  string
	turns   int
	moves   []string       // to another engine
	served  map[string]int // turns by proxy, where the balancer tells
	failed  []string
}

func newTalk(id string) *talk {
	return &talk{id: id, served: map[string]int{}, history: []string{fmt.Sprintf(`{"role":"system","content":"You are %s.%s"}`, id, strings.Repeat(" Rule of "+id+".", 400))}}
}

func (tp *topology) turn(s *talk) {
	s.turns++
	s.history = append(s.history, fmt.Sprintf(`{"role":"user","content":"turn %d of %s"}`, s.turns, s.id))
	tokens := 4
	if s.stream {
		tokens = 150 // about 1.5 s
	}
	body := fmt.Sprintf(`{"model":"sim","max_tokens":%d,"stream":%v,"messages":[%s]}`, tokens, s.stream, strings.Join(s.history, ","))
	base := tp.base[int(tp.next.Add(1))%len(tp.base)]
	req, _ := http.NewRequest(http.MethodPost, base+"/v1/chat/completions", bytes.NewBufferString(body))
	req.Header.Set("content-type", "application/json")
	req.Header.Set("x-session-id", s.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.failed = append(s.failed, err.Error())
		return
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || s.stream && !bytes.HasSuffix(answer, []byte("data: [DONE]\n\n")) {
		s.failed = append(s.failed, fmt.Sprintf("turn %d: %d %.1000s %v", s.turns, resp.StatusCode, answer[max(0, len(answer)-1000):], err))
		return
	}
	// More than one address: the balancer passed the turn on. The last one served it.
	served := strings.Split(resp.Header.Get("x-served-by"), ", ")
	s.served[served[len(served)-1]]++
	engine := resp.Header.Get("x-warmring-engine")
	if s.engine != "" && engine != s.engine {
		s.moves = append(s.moves, fmt.Sprintf("turn %d of %s went from %s to %s: %s, warm %s, through %s at %s", s.turns, s.id, s.engine, engine,
			resp.Header.Get("x-warmring-reason"), resp.Header.Get("x-warmring-warm"), resp.Header.Get("x-served-by"), time.Now().Format("05.000")))
	}
	s.engine = engine
	s.history = append(s.history, `{"role":"assistant","content":"done"}`)
}

// heard waits until all proxies that serve know the same: whatever was placed, all have heard of it. News takes some milliseconds, but
// nobody knows how many on a slow machine.
func (tp *topology) heard() error {
	return wait(func() error {
		digest := ""
		for _, name := range tp.names {
			var v clusterView
			if err := tp.get(name, "/api/cluster", &v); err != nil || !v.Ready {
				continue // it restarts, and asks the others before it serves
			}
			if v.Untold > 0 || digest != "" && v.Digest != digest {
				return fmt.Errorf("%s: %d untold, digest %s, not %s", name, v.Untold, v.Digest, digest)
			}
			digest = v.Digest
		}
		return nil
	})
}

// during lets sessions take turns as long as f runs, and answers them. Those with long answers take a turn at about the same time, and
// the next when all proxies have heard of them; so do the others.
func (tp *topology) during(sessions int, f func()) []*talk {
	ended := make(chan struct{})
	var all []*talk
	for i := range sessions {
		s := newTalk(fmt.Sprintf("session-%d", i))
		s.stream = i%4 == 0
		all = append(all, s)
	}
	rounds := func(stream bool) {
		for {
			var group sync.WaitGroup
			for i, s := range all {
				if s.stream == stream {
					group.Go(func() {
						time.Sleep(time.Duration(i) * 200 * time.Millisecond / time.Duration(len(all)))
						tp.turn(s)
					})
				}
			}
			group.Wait()
			if err := tp.heard(); err != nil {
				tp.t.Errorf("waited for all proxies to know the same: %v", err)
				return
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	}
	var both sync.WaitGroup
	both.Go(func() { rounds(true) })
	both.Go(func() { rounds(false) })
	f()
	close(ended)
	both.Wait()
	return all
}

// judge adds up and fails the test on failed turns and on sessions that left their engine.
func judge(t *testing.T, what string, all []*talk) {
	t.Helper()
	turns, moved, failed := 0, 0, 0
	engines, served := map[string]int{}, map[string]int{}
	for _, s := range all {
		turns += s.turns
		moved += len(s.moves)
		for _, move := range s.moves {
			t.Log(move)
		}
		failed += len(s.failed)
		engines[s.engine]++
		for proxy, n := range s.served {
			served[proxy] += n
		}
		if len(s.failed) > 0 {
			t.Errorf("%s: %d of %d turns failed, first: %s", s.id, len(s.failed), s.turns, s.failed[0])
		}
	}
	t.Logf("%s: %d sessions, %d turns, %d failed, %d not on their session's engine; sessions by engine %v, turns by proxy %v", what, len(all), turns, failed, moved, engines, served)
	if float64(moved) > 0.001*float64(turns) {
		t.Errorf("%s: %d of %d turns were not on their session's engine", what, moved, turns)
	}
	if len(engines) < 2 {
		t.Errorf("%s: all sessions on one engine: %v", what, engines)
	}
}

func TestTheComposeTopologyKeepsSessionsOnTheirEngines(t *testing.T) {
	tp := startTopology(t)
	all := tp.during(24, func() { time.Sleep(3 * time.Second) })
	judge(t, "balancer by turns", all)
	if len(tp.base) > 1 {
		return // without a balancer nobody says who served
	}
	served := map[string]bool{}
	for _, s := range all {
		for proxy := range s.served {
			served[proxy] = true
		}
	}
	if len(served) != len(tp.names) {
		t.Errorf("only %d of %d proxies served: the balancer does not balance", len(served), len(tp.names))
	}
}

// The script that "docker compose run agent" runs.
func TestTheAgentOfTheComposeFileStaysOnItsEngine(t *testing.T) {
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	tp := startTopology(t)
	agent := exec.Command("sh", mountOf(at(document(t, "compose.yaml"), "services", "agent"), "/agent.sh"))
	agent.Env = append(agent.Environ(), "BASE_URL="+tp.base[0])
	out, err := agent.CombinedOutput()
	t.Logf("it printed\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^turn \d: proxy (\S*) +engine (\S+) +reason (\S+) +warm (\d+)/(\d+)$`).FindAllSubmatch(out, -1)
	if len(lines) != 5 {
		t.Fatalf("%d turns, not 5", len(lines))
	}
	for i, line := range lines {
		if string(line[2]) != string(lines[0][2]) {
			t.Errorf("turn %d went to %s, the first to %s", i+1, line[2], lines[0][2])
		}
		if i > 0 && string(line[3]) != "bound" && string(line[3]) != "home" {
			t.Errorf("turn %d: reason %s", i+1, line[3])
		}
	}
}

// C113, C212: a rollout. One proxy after another is told to end and comes back. Nobody's turn fails, and no session moves.
func TestProxiesRestartOneByOneUnnoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	tp := startTopology(t)
	judge(t, "rolling restart", tp.during(16, func() {
		for _, name := range tp.names {
			tp.restart(name)
		}
	}))
}

// The README's three rollouts that change the cluster's key.
func TestTheClusterKeyChangesWithoutAGap(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	tp := startTopology(t)
	const old, both, turned, new = `["${WARMRING_CLUSTER_KEY}"]`, `["${WARMRING_CLUSTER_KEY}", "${WARMRING_CLUSTER_KEY_2}"]`,
		`["${WARMRING_CLUSTER_KEY_2}", "${WARMRING_CLUSTER_KEY}"]`, `["${WARMRING_CLUSTER_KEY_2}"]`
	from := old
	judge(t, "three rollouts of the key", tp.during(16, func() {
		for _, to := range []string{both, turned, new} {
			changed := strings.Replace(tp.config, "keys = "+from, "keys = "+to, 1)
			if changed == tp.config {
				t.Fatalf("the file of the proxies has no keys = %s", from)
			}
			tp.config, from = changed, to
			for _, name := range tp.names {
				tp.restart(name) // which waits until all know all, encrypted
			}
		}
	}))
}
