package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// The four API families, by the path that each has.
const (
	Chat        = "/v1/chat/completions"
	Completions = "/v1/completions"
	Messages    = "/v1/messages"
	Responses   = "/v1/responses"
)

// Body is a request's JSON object.
type Body map[string]any

// With is a copy of the body with further fields.
func (b Body) With(more Body) Body {
	all := maps.Clone(b)
	maps.Copy(all, more)
	return all
}

// Answer is what a server answered, read as its family wants it read. Numbers that it did not tell are -1.
type Answer struct {
	Status   int
	Header   http.Header
	Text     string        // what the model wrote
	Body     []byte        // as it came, without chunk framing
	Prompt   int           // tokens of the prompt
	Cached   int           // of which the engine had
	Output   int           // tokens written
	Events   int           // events of a stream
	First    time.Duration // from sending to the first event, or to the whole answer
	Total    time.Duration // from sending to the end
	Finished bool          // the family's last event was seen, or it is a complete answer of status 200
	Failure  string        // an error that a stream with status 200 told
}

// Engine that a proxy says it chose.
func (a *Answer) Engine() string { return a.Header.Get("x-warmring-engine") }

// Client asks as a plain program would: one connection pool, no retries.
type Client struct {
	Base   string            // URL without a slash at the end
	Header map[string]string // sent with each request
	HTTP   *http.Client      // nil = the default one
	Began  func(*Answer)     // nil, or called once when a stream's first event is there
}

// Ask sends one request and reads the whole answer. Statuses are no errors; a broken stream is one, beside what had come.
func (c Client) Ask(ctx context.Context, path string, body Body, header map[string]string) (*Answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	for _, all := range []map[string]string{c.Header, header} {
		for name, value := range all {
			request.Header.Set(name, value)
		}
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	begin := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	defer response.Body.Close()
	a := &Answer{Status: response.StatusCode, Header: response.Header, Prompt: -1, Cached: -1, Output: -1}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		err = a.readStream(response.Body, begin, c.Began)
	} else {
		a.Body, err = io.ReadAll(response.Body)
		a.First = time.Since(begin)
		if err == nil && a.Status == http.StatusOK {
			a.Finished = true
			err = a.take(a.Body)
		}
	}
	a.Total = time.Since(begin)
	if err != nil {
		return a, fmt.Errorf("answer of %s: %w", path, err)
	}
	return a, nil
}

func (a *Answer) readStream(body io.Reader, begin time.Time, began func(*Answer)) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		a.Body = append(a.Body, line...)
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if a.Events++; a.Events == 1 {
				a.First = time.Since(begin)
				if began != nil {
					began(a)
				}
			}
			data = bytes.TrimSpace(data)
			if string(data) == "[DONE]" {
				a.Finished = true
			} else if err := a.take(data); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// usage in the words of all families.
type usage struct {
	Prompt        *int `json:"prompt_tokens"`
	Completion    *int `json:"completion_tokens"`
	Input         *int `json:"input_tokens"`
	Output        *int `json:"output_tokens"`
	CacheRead     *int `json:"cache_read_input_tokens"`
	CacheWritten  *int `json:"cache_creation_input_tokens"`
	PromptDetails *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	InputDetails *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// piece is an answer or one event of a stream, of any family.
type piece struct {
	Type    string `json:"type"`
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Output []struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"output"`
	Delta    json.RawMessage `json:"delta"`
	Message  json.RawMessage `json:"message"`
	Response struct {
		Usage *usage `json:"usage"`
	} `json:"response"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (a *Answer) take(data []byte) error {
	var p piece
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%w in %.200q", err, data)
	}
	for _, choice := range p.Choices {
		a.Text += choice.Text + choice.Message.Content + choice.Delta.Content
	}
	for _, part := range p.Content {
		a.Text += part.Text
	}
	for _, item := range p.Output {
		for _, part := range item.Content {
			a.Text += part.Text
		}
	}
	switch p.Type {
	case "content_block_delta":
		var delta struct {
			Text string `json:"text"`
		}
		_ = json.Unmarshal(p.Delta, &delta)
		a.Text += delta.Text
	case "response.output_text.delta":
		var delta string
		_ = json.Unmarshal(p.Delta, &delta)
		a.Text += delta
	case "message_start":
		var message struct {
			Usage *usage `json:"usage"`
		}
		_ = json.Unmarshal(p.Message, &message)
		a.count(message.Usage)
	case "message_stop", "response.completed", "response.incomplete":
		a.Finished = true
	}
	if len(p.Error) > 0 && string(p.Error) != "null" {
		a.Failure = string(p.Error)
	}
	a.count(p.Usage)
	a.count(p.Response.Usage)
	return nil
}

// count takes over what a usage object tells. An input_tokens beside cache fields counts only what is neither read from
// the cache nor written to it; here the whole prompt counts.
func (a *Answer) count(u *usage) {
	if u == nil {
		return
	}
	set := func(to *int, from *int) {
		if from != nil {
			*to = *from
		}
	}
	set(&a.Prompt, u.Prompt)
	set(&a.Prompt, u.Input)
	set(&a.Output, u.Completion)
	set(&a.Output, u.Output)
	set(&a.Cached, u.CacheRead)
	if u.PromptDetails != nil {
		set(&a.Cached, u.PromptDetails.Cached)
	}
	if u.InputDetails != nil {
		set(&a.Cached, u.InputDetails.Cached)
	}
	for _, part := range []*int{u.CacheRead, u.CacheWritten} {
		if u.Input != nil && part != nil {
			a.Prompt += *part
		}
	}
}
