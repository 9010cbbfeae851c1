package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/warmring/warmring/engines/sim"
	"github.com/warmring/warmring/ring/prompt/captured"
	"pgregory.net/rapid"
)

// An engine that has answered a slice finds all of it again in the whole, but for what a block and a chat template take.
func TestAnEngineGoesOnFromASlice(t *testing.T) {
	paths := map[Family]string{Chat: "/v1/chat/completions", Messages: "/v1/messages", Responses: "/v1/responses", Completions: "/v1/completions"}
	const block = 16
	for _, mode := range []sim.Mode{sim.VLLM, sim.SGLang} {
		t.Run(mode.String(), func(t *testing.T) {
			engine, err := sim.Start(sim.ServerOptions{Options: sim.Options{Mode: mode, BlockTokens: block}, Speed: 1e4, Models: []string{"m"}})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			runs := 0
			rapid.Check(t, func(t *rapid.T) {
				family := rapid.SampledFrom([]Family{Chat, Messages, Responses, Completions}).Draw(t, "family")
				body := drawSession(t, family)
				slice, ok := AppendSlice(nil, body, family, rapid.Float64Range(0.01, 0.99).Draw(t, "share"))
				if !ok {
					return
				}
				runs++
				salt := []byte(fmt.Sprintf(`{"cache_salt":"%s%d",`, family, runs))
				var counted [2]sim.Entry
				for i, b := range [][]byte{slice, body} {
					engine.ClearLog()
					answer, err := client.Post(engine.URL()+paths[family], "application/json", bytes.NewReader(append(bytes.Clone(salt), b[1:]...)))
					if err != nil {
						t.Fatal(err)
					}
					_, err = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					if err != nil || answer.StatusCode != http.StatusOK {
						t.Fatalf("status %d, %v: %s", answer.StatusCode, err, b)
					}
					log := engine.Log()
					if len(log) != 1 {
						t.Fatalf("%d requests", len(log))
					}
					counted[i] = log[0]
				}
				if n := counted[0].OutputTokens; n > 3 || (n > 1 && family != Responses) || counted[0].Stream {
					t.Fatalf("%d tokens put out, stream %v", n, counted[0].Stream)
				}
				// Behind the cut: the ends of the turns, the emptied answers, the start of the answer.
				suffix := 12 + 12*(bytes.Count(slice, []byte(`:""`))+bytes.Count(slice, []byte(`:[]`)))
				if got, want := counted[1].CachedTokens, counted[0].PromptTokens-2*block-suffix; got < want {
					t.Fatalf("%d tokens found of %d computed before: %s", got, counted[0].PromptTokens, slice)
				}
			})
			t.Logf("%d slices", runs)
			if runs == 0 {
				t.Error("nothing was sliced")
			}
		})
	}
}

func FuzzAppendSlice(f *testing.F) {
	for _, name := range captured.Names() {
		requests, err := captured.Load(name)
		if err != nil {
			f.Fatal(err)
		}
		if body := requests[0].Body; len(body) < 4000 {
			f.Add([]byte(body), byte(familyOf(requests[0].Target)), byte(120))
		}
	}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"a\ud83d\ude00b \\ \u0041 c d e f"},{"role":"assistant"},{"role":"user"}],"thinking":{"type":"enabled"}}`,
		`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a b c"}]},{"type":"tool_result","content":"d"},{"type":"text","text":"e"}]},{"role":"user","content":"x"}]}`,
		`{"messages":[{"role":"user","content":"x"},{"role":"tool","content":"a b c"},{"role":"tool","content":"d"}],"n":1}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a b"},1,"x"]},{"type":"f_output","output":"a"},{"type":"f_output","output":"b"},{"type":"x"}],"background":false}`,
		`{"input":"a b c","store":true}`, `{"prompt":"a b c","n":2}`, `{"prompt":[1,2,-3e4, 4]}`, `{"prompt":["a b"]}`, `{"prompt":[[1,2]]}`,
	} {
		for family := range Responses + 1 {
			for _, share := range []byte{1, 100, 200} {
				f.Add([]byte(body), byte(family), share)
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, family, share byte) {
		fam, part := Family(family%byte(Responses+1)), float64(share)/256
		slice, ok := AppendSlice(nil, body, fam, part)
		if !ok {
			if slice != nil {
				t.Fatal("something was appended")
			}
			return
		}
		if !json.Valid(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))) {
			return // strings are passed unread; the engine decides
		}
		if !json.Valid(slice) {
			t.Fatalf("not JSON: %s", slice)
		}
		if utf8.Valid(body) {
			checkSlices(t, body, fam, part)
		}
	})
}
