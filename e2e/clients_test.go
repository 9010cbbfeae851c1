package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmring/warmring/engines/sim"
)

// told is a line that the client scripts print for each request.
type told struct {
	Client, API, Engine, Session, Text string
	Turn                               int
	Tool                               []struct{ Name, Arguments string }
	Prompt, Cached                     *int
}

// The SDKs' conversations, with a tool call each, must come through from the first to the last turn, all turns of one on
// one engine, and each turn must find the one before in the cache.
func conversations(t *testing.T, script Script, err error) {
	t.Helper()
	need(t, err)
	out, err := script.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type held struct {
		engine string
		turns  int
		calls  int
		prompt int
	}
	all := map[string]*held{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var line told
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("the client printed %q: %v", lines.Bytes(), err)
		}
		shared.drive(line.Client)
		h := all[line.API]
		if h == nil {
			h = &held{engine: line.Engine}
			all[line.API] = h
		}
		h.turns++
		h.calls += len(line.Tool)
		if line.Engine == "" || line.Engine != h.engine {
			t.Errorf("%s turn %d ran on %q, the turns before on %q", line.API, line.Turn, line.Engine, h.engine)
		}
		if line.Prompt == nil || line.Cached == nil {
			t.Errorf("%s turn %d: no usage", line.API, line.Turn)
			continue
		}
		// A turn finds all but the last blocks of the one before.
		if line.Turn > 1 && *line.Cached < h.prompt-2*vllmBlock {
			t.Errorf("%s turn %d: %d of %d prompt tokens cached, the turn before had %d", line.API, line.Turn, *line.Cached, *line.Prompt, h.prompt)
		}
		h.prompt = *line.Prompt
		if line.Text == "" && len(line.Tool) == 0 {
			t.Errorf("%s turn %d: an empty answer", line.API, line.Turn)
		}
	}
	for api, least := range map[string]int{"chat": 4, "responses": 3, "messages": 3} {
		if all[api] == nil || all[api].turns < least {
			t.Errorf("%s: %+v, want at least %d turns", api, all[api], least)
		}
	}
	if t.Failed() {
		t.Logf("the client printed:\n%s", out)
		return
	}
	if all["chat"].calls == 0 {
		t.Error("no tool call was made")
	}
	t.Logf("chat %+v, responses %+v, messages %+v", *all["chat"], *all["responses"], *all["messages"])
}

func TestPythonSDKsOnVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	script, err := PythonClient(t.TempDir(), "turns.py", w.URL, "tiny", "forced", filepath.Join(Home(), "models", "tiny", "blanks.json"))
	conversations(t, script, err)
}

func TestNodeSDKsOnVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	script, err := NodeClient(t.TempDir(), "turns.mjs", w.URL, "tiny", "forced", filepath.Join(Home(), "models", "tiny", "blanks.json"))
	conversations(t, script, err)
}

func TestPythonSDKsOnSimulatedEngines(t *testing.T) {
	w := proxy(t, "", simulated(t, sim.VLLM, 3)...)
	script, err := PythonClient(t.TempDir(), "turns.py", w.URL, "sim", "directive")
	conversations(t, script, err)
}

func TestNodeSDKsOnSimulatedEngines(t *testing.T) {
	w := proxy(t, "", simulated(t, sim.VLLM, 3)...)
	script, err := NodeClient(t.TempDir(), "turns.mjs", w.URL, "sim", "directive")
	conversations(t, script, err)
}

// simulated engines in this process.
func simulated(t *testing.T, mode sim.Mode, n int) []*Engine {
	t.Helper()
	var engines []*Engine
	for i := range n {
		s, err := sim.Start(sim.ServerOptions{Options: sim.Options{Mode: mode, BlockTokens: vllmBlock}, AnswerTokens: 12, KeepBodies: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		engines = append(engines, &Engine{Process: &Process{Name: engineName(i)}, URL: s.URL(), Model: "sim", Kind: mode.String(), sim: s})
	}
	return engines
}

// The coding agent pi works for several turns, calls its own tools, and goes on in later runs: all on one of three engines,
// which finds each turn's history in its cache. It sends no id on chat and messages.
func TestPiOnSimulatedEngines(t *testing.T) {
	for _, api := range []string{"openai-completions", "openai-responses", "anthropic-messages"} {
		t.Run(api, func(t *testing.T) {
			engines := simulated(t, sim.VLLM, 3)
			w := proxy(t, "", engines...)
			pi := Pi{Home: t.TempDir(), Base: w.URL, Model: "sim", API: api, MaxTokens: 64}
			for turn, prompt := range []string{
				`Look around. [[call bash {"command":"echo one > made-by-tool.txt"}]] [[call bash {"command":"ls"}]]`,
				"And what is in them?",
				`Once more. [[call read {"path":"made-by-tool.txt"}]]`,
			} {
				out, err := pi.Turn(t.Context(), turn > 0, prompt)
				need(t, err)
				if len(bytes.TrimSpace(out)) == 0 {
					t.Errorf("run %d: the agent printed nothing", turn+1)
				}
			}
			shared.drive(version("pi"))
			if _, err := os.Stat(filepath.Join(pi.Home, "made-by-tool.txt")); err != nil {
				t.Errorf("the tool was not run: %v", err)
			}
			var used []string
			requests, prompt := 0, 0
			for _, e := range engines {
				n := 0
				for _, entry := range e.sim.Log() {
					if !strings.HasPrefix(entry.Path, "/v1/") || entry.PromptTokens == 0 {
						continue
					}
					n++
					if n > 1 && entry.CachedTokens < prompt-2*vllmBlock {
						t.Errorf("request %d on %s: %d of %d prompt tokens cached, the one before had %d", n, e.Name, entry.CachedTokens, entry.PromptTokens, prompt)
					}
					prompt = entry.PromptTokens
				}
				if n > 0 {
					used = append(used, fmt.Sprintf("%s: %d", e.Name, n))
				}
				requests += n
			}
			t.Logf("%d requests, engines used: %v; last prompt %d tokens", requests, used, prompt)
			if len(used) != 1 || requests < 6 {
				t.Errorf("%d requests on %v, want at least 6 on one engine", requests, used)
			}
		})
	}
}

// pi also holds a conversation with the real engine, whose answers are words at random: no tool calls, but real usage.
func TestPiOnVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	before := served(t, engines)
	pi := Pi{Home: t.TempDir(), Base: w.URL, Model: "tiny", API: "openai-completions", MaxTokens: 24}
	for turn := range 3 {
		if _, err := pi.Turn(t.Context(), turn > 0, fmt.Sprintf("Tell me more, %d.", turn)); err != nil {
			need(t, err)
		}
	}
	shared.drive(version("pi"))
	after := served(t, engines)
	first, second := after[0]-before[0], after[1]-before[1]
	t.Logf("%v requests on one engine, %v on the other", first, second)
	if first+second < 3 || min(first, second) != 0 {
		t.Errorf("%v requests on one engine and %v on the other, want all (3 or more) on one", first, second)
	}
}

// served is how many requests each vLLM has brought to an end.
func served(t *testing.T, engines []*Engine) (n []float64) {
	t.Helper()
	for _, e := range engines {
		m, err := Scrape(t.Context(), e.URL+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, m.Sum("vllm:request_success_total"))
	}
	return n
}
