package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// On all four wire formats a real vLLM's answer comes through warmring as it comes from the engine itself, in one piece or
// as a stream, with the engine's own counts; and the second request finds the first one's prompt in the cache.
func TestFourFamiliesThroughToVLLM(t *testing.T) {
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	long := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 60)
	for _, f := range []struct {
		path string
		body Body
	}{
		{Chat, Body{"messages": []Message{{"system", "Chat."}, {"user", long}}, "max_tokens": 12}},
		{Completions, Body{"prompt": "Completion. " + long, "max_tokens": 12}},
		{Messages, Body{"system": "Messages.", "messages": []Message{{"user", long}}, "max_tokens": 12}},
		{Responses, Body{"instructions": "Responses.", "input": long, "max_output_tokens": 12}},
	} {
		t.Run(strings.TrimPrefix(f.path, "/v1/"), func(t *testing.T) {
			body := f.body.With(Body{"model": "tiny", "temperature": 0})
			stream := body.With(Body{"stream": true})
			counted := stream
			if f.path == Chat || f.path == Completions {
				counted = stream.With(Body{"stream_options": Body{"include_usage": true}})
			}
			client := Client{Base: w.URL}
			ask := func(client Client, body Body) *Answer {
				t.Helper()
				a, err := client.Ask(t.Context(), f.path, body, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != http.StatusOK || !a.Finished || a.Failure != "" || a.Text == "" {
					t.Fatalf("status %d, finished %v, failure %q, text %q: %.500s", a.Status, a.Finished, a.Failure, a.Text, a.Body)
				}
				return a
			}
			cold := ask(client, body)
			if cold.Cached != 0 || cold.Prompt < 200 || cold.Output != 12 {
				t.Errorf("cold: cached %d of %d prompt tokens, %d written", cold.Cached, cold.Prompt, cold.Output)
			}
			home := engines[cold.Engine()[0]-'a']
			whole, streamed := ask(client, body), ask(client, counted)
			direct, directStreamed := ask(Client{Base: home.URL}, body), ask(Client{Base: home.URL}, counted)
			for name, a := range map[string]*Answer{"whole": whole, "streamed": streamed, "streamed by the engine": directStreamed} {
				if a.Text != direct.Text || a.Prompt != direct.Prompt || a.Cached != direct.Cached || a.Output != direct.Output {
					t.Errorf("%s: %q, %d prompt tokens, %d cached, %d written; the engine itself: %q, %d, %d, %d",
						name, a.Text, a.Prompt, a.Cached, a.Output, direct.Text, direct.Prompt, direct.Cached, direct.Output)
				}
			}
			for _, a := range []*Answer{whole, streamed} {
				if a.Engine() != cold.Engine() || a.Cached < cold.Prompt-2*vllmBlock {
					t.Errorf("warm on %s: %d cached of %d; cold was on %s", a.Engine(), a.Cached, a.Prompt, cold.Engine())
				}
			}
			if got, want := kinds(streamed), kinds(directStreamed); got != want {
				t.Errorf("events %s, the engine itself sends %s", got, want)
			}
			t.Logf("%d prompt tokens, %d cached, %d events", whole.Prompt, whole.Cached, streamed.Events)
			if f.path == Chat || f.path == Completions { // usage that only warmring asked for stays out of sight
				silent, bare := ask(client, stream), ask(Client{Base: home.URL}, stream)
				if strings.Contains(string(silent.Body), `"prompt_tokens":`) || kinds(silent) != kinds(bare) || silent.Text != direct.Text {
					t.Errorf("a client that asks for no usage got %s, the engine itself sends %s: %s", kinds(silent), kinds(bare), silent.Body)
				}
			}
		})
	}
}

// kinds of the events of a stream, in order: their type, or their members where they have none. Of several alike in a row,
// only one: vLLM joins what it writes while the reader is busy. system_fingerprint is left out: it rides on the usage event
// where there is one, on the one before where there is none.
func kinds(a *Answer) string {
	var all []string
	for _, line := range strings.Split(string(a.Body), "\n") {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			continue
		}
		kind := strings.TrimSpace(data)
		var event map[string]json.RawMessage
		if json.Unmarshal([]byte(data), &event) == nil {
			delete(event, "system_fingerprint")
			if kind = string(event["type"]); kind == "" {
				kind = strings.Join(sorted(event), "+")
			}
		}
		if len(all) == 0 || all[len(all)-1] != kind {
			all = append(all, kind)
		}
	}
	return strings.Join(all, ", ")
}

// What an engine says no to, the client hears in the engine's own words, and the engine is not taken for broken.
func TestRefusalsOfVLLMPass(t *testing.T) { // C076
	engines := twoVLLMs(t)
	w := proxy(t, "", engines...)
	for name, c := range map[string]struct {
		path string
		body Body
		want int
	}{
		"too long":            {Chat, Body{"messages": []Message{{"user", strings.Repeat("word and word ", 20000)}}, "max_tokens": 4}, http.StatusBadRequest},
		"too long, messages":  {Messages, Body{"messages": []Message{{"user", strings.Repeat("word and word ", 20000)}}, "max_tokens": 4}, http.StatusBadRequest},
		"too long, stream":    {Chat, Body{"messages": []Message{{"user", strings.Repeat("word and word ", 20000)}}, "max_tokens": 4, "stream": true}, http.StatusBadRequest},
		"a bad field":         {Chat, Body{"messages": []Message{{"user", "hi"}}, "max_tokens": -4}, http.StatusBadRequest},
		"no messages":         {Chat, Body{"max_tokens": 4}, http.StatusBadRequest},
		"a bad field, stream": {Completions, Body{"prompt": "hi", "max_tokens": 4, "temperature": -3, "stream": true}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			body := c.body.With(Body{"model": "tiny"})
			direct, err := Client{Base: engines[0].URL}.Ask(t.Context(), c.path, body, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 6 { // more often than a breaker would bear
				a, err := Client{Base: w.URL}.Ask(t.Context(), c.path, body, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != c.want || a.Status != direct.Status || string(a.Body) != string(direct.Body) {
					t.Fatalf("status %d %.300s; the engine itself: %d %.300s", a.Status, a.Body, direct.Status, direct.Body)
				}
			}
			fine, err := Client{Base: w.URL}.Ask(t.Context(), Completions, Body{"model": "tiny", "prompt": "hi", "max_tokens": 2}, nil)
			if err != nil || fine.Status != http.StatusOK {
				t.Fatalf("a good request behind the bad ones: %v %+v", err, fine)
			}
		})
	}
}
