package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Step is one request of a script that a real engine and a simulated one are both given, one after the
// other: their counts must agree.
type Step struct {
	Name string // what the step is about
	Path string
	Body []byte
	// Chat steps depend on the real engine's template and tokenizer: give the simulated one
	// ServerOptions.TokenizeBody, or leave them out.
	Chat bool
}

// Count is what an engine said of a step.
type Count struct {
	Name           string
	Prompt, Cached int
}

// ScriptOptions fit a script to an engine.
type ScriptOptions struct {
	Model       string
	BlockTokens int // grain of the cache
	KVTokens    int // capacity; prompts get as long as a third of it
	TokenIDs    int // ids run below this; default 1000
	Seed        uint64
}

// Script is a conversation with its next turn, repeats, forks on and off block boundaries, prompts
// around a block's size, least recently used order, and prompts that together exceed the cache, as
// token ids; then a conversation as chat. It needs an engine with an empty cache.
func Script(o ScriptOptions) []Step {
	if o.TokenIDs <= 8 {
		o.TokenIDs = 1000
	}
	w := scriptWriter{o: o}
	b := o.BlockTokens
	a := w.tokens(1, 10*b+7)
	w.ask("a prompt", a, 4)
	w.ask("the same again", a, 4)
	w.ask("its next turn", w.more(a, 2, 3*b+5), 4)
	w.ask("a fork within a block", w.more(a[:4*b+b/2], 3, 5*b), 4)
	w.ask("a fork at a block's end", w.more(a[:5*b], 4, 2*b+1), 4)
	aligned := w.tokens(5, 6*b)
	w.ask("a prompt of whole blocks", aligned, 1)
	w.ask("it again: the last block is computed", aligned, 1)
	w.ask("one token longer", w.more(aligned, 6, 1), 1)
	w.ask("one token shorter", aligned[:6*b-1], 1)
	short := w.tokens(7, max(b-1, 1))
	w.ask("less than a block", short, 1)
	w.ask("less than a block again", short, 1)
	w.ask("grown to two blocks", w.more(short, 8, b+1), b+2)
	w.ask("and again", w.more(short, 8, b+1), 1)

	third := o.KVTokens / 3
	p, q := w.tokens(10, third-third%b-3), w.tokens(11, third-third%b-5)
	w.ask("a third of the cache", p, 1)
	w.ask("another third", q, 1)
	w.ask("the first third again: now used last", p, 1)
	w.ask("half of the cache pushes out the second third", w.tokens(12, o.KVTokens/2), 1)
	w.ask("the first third", p, 1)
	w.ask("the second third", q, 1)
	for pass := 1; pass <= 2; pass++ {
		for i := 0; i < 4; i++ {
			w.ask(fmt.Sprintf("four prompts of 28 %% in turn, pass %d, prompt %d", pass, i), w.tokens(20+i, o.KVTokens*28/100), 1)
		}
	}
	w.ask("the first prompt, long gone", a, 1)

	system := fmt.Sprintf(`{"role":"system","content":"You are number %d. %s"}`, o.Seed, w.prose(40, 120))
	turn := func(text int) string { return fmt.Sprintf(`{"role":"user","content":%q}`, w.prose(text, 60)) }
	say := func(text int) string { return fmt.Sprintf(`{"role":"assistant","content":%q}`, w.prose(text, 30)) }
	w.chat("chat, first turn", system, turn(41))
	w.chat("chat, again", system, turn(41))
	w.chat("chat, second turn", system, turn(41), say(42), turn(43))
	w.chat("chat, third turn", system, turn(41), say(42), turn(43), say(44), turn(45))
	w.chat("chat, a fork from the first answer", system, turn(41), say(42), turn(46))
	w.chat("chat, another session with the same system prompt", system, turn(47))
	return w.steps
}

type scriptWriter struct {
	o     ScriptOptions
	steps []Step
}

// tokens are n ids of text number k.
func (w *scriptWriter) tokens(k, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 5 + int(chain(chain(w.o.Seed, uint64(k)), uint64(i))%uint64(w.o.TokenIDs-5))
	}
	return ids
}

func (w *scriptWriter) more(ids []int, k, n int) []int {
	return append(ids[:len(ids):len(ids)], w.tokens(k, n)...)
}

func (w *scriptWriter) prose(k, words int) string {
	a := answer{seed: chain(w.o.Seed, uint64(k))}
	return string(a.text(nil, 0, words))
}

func (w *scriptWriter) ask(name string, ids []int, output int) {
	body, _ := json.Marshal(map[string]any{"model": w.o.Model, "prompt": ids, "max_tokens": output, "ignore_eos": true})
	w.steps = append(w.steps, Step{Name: name, Path: "/v1/completions", Body: body})
}

func (w *scriptWriter) chat(name string, messages ...string) {
	var list []json.RawMessage
	for _, m := range messages {
		list = append(list, json.RawMessage(m))
	}
	body, _ := json.Marshal(map[string]any{"model": w.o.Model, "messages": list, "max_tokens": 4, "ignore_eos": true})
	w.steps = append(w.steps, Step{Name: name, Path: "/v1/chat/completions", Body: body, Chat: true})
}

// Play sends a script's steps to an engine and reads what it counted.
func Play(ctx context.Context, client *http.Client, baseURL string, steps []Step) ([]Count, error) {
	var counts []Count
	for _, s := range steps {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+s.Path, bytes.NewReader(s.Body))
		if err != nil {
			return counts, fmt.Errorf("step %q: %w", s.Name, err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return counts, fmt.Errorf("step %q: %w", s.Name, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return counts, fmt.Errorf("read the answer to step %q: %w", s.Name, err)
		}
		var answer struct {
			Usage *struct {
				PromptTokens int `json:"prompt_tokens"`
				Details      *struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || res.StatusCode != http.StatusOK || answer.Usage == nil || answer.Usage.Details == nil {
			return counts, fmt.Errorf("step %q: status %d without cached token counts (is the engine's flag for them on?): %.300s", s.Name, res.StatusCode, body)
		}
		counts = append(counts, Count{Name: s.Name, Prompt: answer.Usage.PromptTokens, Cached: answer.Usage.Details.Cached})
	}
	return counts, nil
}
