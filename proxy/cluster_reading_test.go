package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// readEngine is an engine that knows which proxy reads its metrics page: each has a key of its own.
type readEngine struct {
	*httptest.Server
	mu      sync.Mutex
	reads   map[string]int // by key
	health  map[string]int
	running int
}

func newReadEngine(t *testing.T) *readEngine {
	t.Helper()
	e := &readEngine{reads: map[string]int{}, health: map[string]int{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *readEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	e.mu.Lock()
	defer e.mu.Unlock()
	switch r.URL.Path {
	case "/health":
		e.health[key]++
	case "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
	case "/metrics":
		e.reads[key]++
		fmt.Fprintf(w, "process_start_time_seconds 1000\nvllm:cache_config_info{kv_cache_size_tokens=\"500000\"} 1\nvllm:num_requests_running %d\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.25\n", e.running)
	default:
		http.NotFound(w, r)
	}
}

// readers are the keys that have read the page since a count was taken, if it was read often enough to tell.
func (e *readEngine) readers(before map[string]int, of []string) (who []string, enough bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, key := range of {
		if more := e.reads[key] - before[key]; more > 0 {
			who = append(who, key)
			n += more
		}
	}
	return who, n >= 4
}

func (e *readEngine) count() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]int{}
	for k, n := range e.reads {
		out[k] = n
	}
	return out
}

// oneReaderEach waits for a stretch of readings in which each engine's page was read by one of the proxies alone, and returns whom.
func oneReaderEach(t *testing.T, engines []*readEngine, keys []string) []string {
	t.Helper()
	var who []string
	var before []map[string]int
	eventually(t, "one proxy to read each engine's load page", func() bool {
		if before == nil {
			for _, e := range engines {
				before = append(before, e.count())
			}
		}
		who = who[:0]
		for i, e := range engines {
			readers, enough := e.readers(before[i], keys)
			if len(readers) > 1 { // the proxies have not agreed yet: look anew
				before = nil
				return false
			}
			if !enough {
				return false
			}
			who = append(who, readers[0])
		}
		return true
	})
	return who
}

// The load page of an engine costs it a moment, so one proxy reads it and tells the others. Health each asks for itself.
func TestOneProxyReadsAnEnginesLoadAndTheNextTakesOver(t *testing.T) {
	var fleet []*readEngine
	for range 6 {
		fleet = append(fleet, newReadEngine(t))
	}
	var ports []int
	for range 3 {
		ports = append(ports, freePort(t))
	}
	keys := []string{"k0", "k1", "k2"}
	var proxies []*proxyUnderTest
	for i, key := range keys {
		toml := "listen = \"127.0.0.1:0\"\n" + clusterSection(ports[i], ports...)
		for n, e := range fleet {
			toml += fmt.Sprintf("[[engine]]\nname = \"e%d\"\nurl = %q\napi_key = %q\n", n, e.URL, key)
		}
		proxies = append(proxies, startProxyTOML(t, toml))
	}
	who := oneReaderEach(t, fleet, keys)
	t.Logf("read by %v", who)
	if slices.Compact(slices.Sorted(slices.Values(who)))[0] == "" {
		t.Fatal("nobody reads")
	}

	fleet[0].mu.Lock()
	fleet[0].running = 7
	fleet[0].mu.Unlock()
	for i, p := range proxies {
		eventually(t, "the load to be known to all", func() bool {
			st := p.fleet.ByName("e0").Status()
			return st.Running != nil && *st.Running == 7 && *st.Waiting == 2 && st.KVTokens == 500_000
		})
		fleet[0].mu.Lock()
		if fleet[0].health[keys[i]] == 0 {
			t.Errorf("proxy %d does not look at the engine's health itself", i)
		}
		fleet[0].mu.Unlock()
	}
	for i, key := range keys {
		heard := proxies[i].metric(`warmring_engine_facts_heard_total{engine="e0"}`)
		read := proxies[i].metric(`warmring_engine_facts_read_total{engine="e0"}`)
		if read == "0" || read == "" || key != who[0] && (heard == "0" || heard == "") {
			t.Errorf("proxy %d counts %s read and %s heard", i, read, heard)
		}
	}

	silent := slices.Index(keys, who[0])
	proxies[silent].cluster.Load().Abandon() // as one that hangs
	left := slices.Delete(slices.Clone(keys), silent, silent+1)
	who = oneReaderEach(t, fleet, left)
	t.Logf("read by %v besides the silent one", who)

	leaver := slices.Index(keys, who[0])
	proxies[leaver].shutdown()
	left = slices.DeleteFunc(left, func(k string) bool { return k == keys[leaver] })
	if who = oneReaderEach(t, fleet, left); who[0] != left[0] {
		t.Errorf("read by %v, there is %v alone", who, left)
	}
}
