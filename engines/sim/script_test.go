package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"testing"
)

// What a real vLLM 0.32.0 answered to this script (700 blocks of 32 tokens) is kept in testdata, so the
// simulated engine is held against it without one. WARMRING_SIM_ENGINE=http://host:port plays the
// script on a live engine with an empty cache of that size and rewrites the file.
func TestTheScriptCountsAsOnARealEngine(t *testing.T) {
	const file = "testdata/vllm/script-counts.json"
	opt := ScriptOptions{Model: "tiny", BlockTokens: 32, KVTokens: 22_400, TokenIDs: 2000, Seed: 7}
	steps := Script(opt)
	var want []Count
	ids := map[string][]uint64{}
	record := struct {
		Counts []Count
		Chat   map[string][]uint64 // prompt ids of the chat steps, as the real engine tokenizes them
	}{Chat: ids}
	if url := os.Getenv("WARMRING_SIM_ENGINE"); url != "" {
		counts, err := Play(context.Background(), http.DefaultClient, url, steps)
		if err != nil {
			t.Fatal(err)
		}
		record.Counts = counts
		for _, s := range steps {
			if s.Chat {
				res, err := http.Post(url+"/tokenize", "application/json", bytes.NewReader(s.Body))
				if err != nil {
					t.Fatal(err)
				}
				var answer struct{ Tokens []uint64 }
				json.NewDecoder(res.Body).Decode(&answer)
				res.Body.Close()
				ids[s.Name] = answer.Tokens
			}
		}
		b, _ := json.Marshal(record)
		if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Skip("no recorded counts")
	}
	if err := json.Unmarshal(b, &record); err != nil {
		t.Fatal(err)
	}
	want, ids = record.Counts, record.Chat
	s := start(t, ServerOptions{Options: Options{BlockTokens: 32, KVTokens: 22_400, MaxBatchedTokens: 512}, Models: []string{"tiny"},
		TokenizeBody: func(path string, body []byte) []uint64 {
			for _, s := range steps {
				if s.Chat && bytes.Equal(s.Body, body) {
					return ids[s.Name]
				}
			}
			return nil
		}})
	got, err := Play(context.Background(), http.DefaultClient, s.URL(), steps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			t.Errorf("%s\n got %+v\nwant %+v", got[i].Name, got[i], want[min(i, len(want)-1)])
		}
	}
	wantInt(t, "steps", len(got), len(want))
	http.DefaultClient.CloseIdleConnections()
}

func TestPlaySaysWhatIsMissing(t *testing.T) {
	s := start(t, ServerOptions{HideCached: true})
	_, err := Play(context.Background(), http.DefaultClient, s.URL(), Script(ScriptOptions{Model: "sim", BlockTokens: 16, KVTokens: 16_000})[:1])
	if err == nil {
		t.Error("no error without cached token counts")
	}
	http.DefaultClient.CloseIdleConnections()
}
