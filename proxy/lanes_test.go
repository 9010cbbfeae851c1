package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmring/warmring/engines/sim"
)

// simulated runs a simulated engine of 10,000 fresh tokens a second in steps of
// 1,000, and a proxy before it.
func simulated(t *testing.T, mode sim.Mode, extra string) (*sim.Server, *proxyUnderTest) {
	t.Helper()
	e := sim.NewServer(sim.ServerOptions{Options: sim.Options{Mode: mode, MaxBatchedTokens: 1000, Cost: sim.Cost{Base: 0.002, Prefill: 1e-4, Decode: 1e-4}}, Models: []string{"m"}, KeepBodies: true})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() { e.Close(); <-served })
	kind := mode.String()
	if mode == sim.Llama {
		kind = "custom"
	}
	p := startProxyTOML(t, fmt.Sprintf("listen = \"127.0.0.1:0\"\n%s\n[[engine]]\nname = \"e\"\nkind = %q\nurl = \"http://%s\"\n", extra, kind, ln.Addr()))
	eventually(t, "the engine to be ready", func() bool { return placerState(p.fleet.Engines()[0].State()).String() == "ready" })
	return e, p
}

// ask sends a streamed chat and gives the time to its first token.
func ask(p *proxyUnderTest, body string, header ...string) (ttft time.Duration, h http.Header, text string, err error) {
	req, _ := http.NewRequest("POST", p.url+"/v1/chat/completions", strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	first, err := r.ReadString('\n')
	ttft = time.Since(began)
	rest, restErr := io.ReadAll(r)
	if err == nil {
		err = restErr
	}
	if resp.StatusCode != 200 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, first+string(rest))
	}
	return ttft, resp.Header, first + string(rest), err
}

// words is a text of about n tokens that no other seed repeats.
func words(seed string, n int) string {
	return strings.Repeat(seed+" ", 4*n/(len(seed)+1))
}

// C134, C142: a cold prompt of 20,000 tokens computes for two seconds. Short warm
// turns that come meanwhile do not wait for its end; it is sent again and goes on
// from where it was, and the engine never has two copies of it.
func TestLongPrefillsDoNotBlockShortTurns(t *testing.T) {
	for _, way := range []struct {
		mode   sim.Mode
		slices bool
	}{{sim.VLLM, false}, {sim.VLLM, true}, {sim.SGLang, false}, {sim.SGLang, true}, {sim.Llama, true}} {
		mode, header := way.mode, "X-Warmring-Preempted"
		if way.slices {
			header = "X-Warmring-Slices"
		}
		t.Run(fmt.Sprint(mode, " slices ", way.slices), func(t *testing.T) {
			t.Parallel()
			e, p := simulated(t, mode, fmt.Sprint("lanes.slices = ", way.slices))
			session := []string{words("warm", 3000)}
			short := func() (time.Duration, error) {
				ttft, _, _, err := ask(p, chatStream(session...), "X-Session-Id", "short")
				session = append(session, "answer", words("next", 20))
				return ttft, err
			}
			for range 3 { // the session is warm, the engine's speed is known
				if _, err := short(); err != nil {
					t.Fatal(err)
				}
				if _, _, _, err := ask(p, chatStream(words(fmt.Sprint("other", len(session)), 3000))); err != nil {
					t.Fatal(err)
				}
			}
			e.ClearLog()
			var wg sync.WaitGroup
			var longHeader http.Header
			var longTTFT time.Duration
			var longText string
			var longErr error
			longBody := chatStream(words("long", 20000))
			longID := []string{"X-Session-Id", "long", "X-Request-Id", "long"}
			wg.Add(1)
			go func() {
				defer wg.Done()
				longTTFT, longHeader, longText, longErr = ask(p, longBody, longID...)
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := e.Await(ctx, func(log []sim.Entry) bool { return len(log) > 0 }); err != nil {
				t.Fatal(err)
			}
			var waits []time.Duration
			for range 4 {
				time.Sleep(200 * time.Millisecond) // a person's pause, not a proof
				ttft, err := short()
				if err != nil {
					t.Fatal(err)
				}
				waits = append(waits, ttft)
			}
			wg.Wait()
			if longErr != nil || !strings.HasSuffix(longText, doneEvent) {
				t.Fatalf("the long answer: %v, %q", longErr, longText)
			}
			t.Logf("short turns waited %v, the long one %v with %q preemptions, %q slices", waits, longTTFT, longHeader.Get("X-Warmring-Preempted"), longHeader.Get("X-Warmring-Slices"))
			if longHeader.Get(header) == "" {
				t.Errorf("the long prefill never gave way: no %s", header)
			}
			onlyOneCopyEach(t, e.Log())
			if way.slices {
				if n := p.metric(`warmring_slices_total{engine="e"}`); n != longHeader.Get(header) {
					t.Errorf("%s slices counted, %s told", n, longHeader.Get(header))
				}
			} else if n := p.metric("warmring_preemptions_total"); n == "0" {
				t.Errorf("%s preemptions counted", n)
			}
		})
	}
}

// A held or preempted request's client may leave at any time, and the proxy may
// stop: nothing stays behind.
func TestClientsLeaveWhileLongPromptsAreHeld(t *testing.T) {
	e, p := simulated(t, sim.VLLM, "lanes.border = 1000")
	_ = e
	var wg sync.WaitGroup
	for i := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(50+60*i)*time.Millisecond)
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", p.url+"/v1/chat/completions", strings.NewReader(chatStream(words(fmt.Sprint("gone", i), 30000))))
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
	}
	wg.Wait()
	p.settled()
	if _, _, _, err := ask(p, chatStream(words("after", 2000))); err != nil {
		t.Fatal(err)
	}
}

// lanes.off sends everything at once, as if there were none.
func TestLanesOff(t *testing.T) {
	_, p := simulated(t, sim.VLLM, "lanes.off = true")
	if _, h, _, err := ask(p, chatStream(words("long", 9000))); err != nil || h.Get("X-Warmring-Preempted") != "" {
		t.Fatalf("%v %v", err, h)
	}
}
