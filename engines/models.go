package engines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const maxModels = 1024 // per engine; what lies beyond is not listed

// Model is one card of an engine's /v1/models.
type Model struct {
	ID          string
	MaxModelLen int    // tokens; 0 = unknown
	Parent      string // base model of a LoRA adapter
	Raw         []byte // the card as the engine wrote it; not to be changed
	owner       string // owned_by
}

// readModels reads an answer to /v1/models. Cards are read one by one: one that lacks fields, or has one of another type, keeps the rest; one without an id is left out (C170). Anything that is
// no list of models is an error.
func readModels(body []byte) ([]Model, error) {
	var list struct {
		Data *[]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
			return nil, errors.New("the answer is a web page, not a list of models; is the URL right?")
		}
		return nil, fmt.Errorf("the answer is no list of models: %w", err)
	}
	if list.Data == nil {
		return nil, errors.New("the answer is no list of models: it has no data")
	}
	models := make([]Model, 0, min(len(*list.Data), maxModels))
	seen := map[string]bool{}
	for _, raw := range *list.Data {
		if len(models) == maxModels {
			break
		}
		var card map[string]json.RawMessage
		if json.Unmarshal(raw, &card) != nil {
			continue
		}
		m := Model{ID: text(card["id"]), Parent: text(card["parent"]), owner: text(card["owned_by"])}
		if m.ID == "" || seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		m.MaxModelLen = max(whole(card["max_model_len"]), whole(card["context_length"]), nested(card["meta"], "n_ctx"))
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil {
			continue
		}
		m.Raw = compact.Bytes()
		models = append(models, m)
	}
	return models, nil
}

// ownCard is the card of a model that no engine describes.
func ownCard(id, root string) []byte {
	card := struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int    `json:"created"`
		Owner   string `json:"owned_by"`
		Root    string `json:"root,omitempty"`
	}{id, "model", 0, "warmring", root}
	raw, err := json.Marshal(card)
	if err != nil {
		return []byte("{}")
	}
	return raw
}

// restrict keeps the allowed models, all when allowed is empty.
func restrict(models []Model, allowed []string) []Model {
	if len(allowed) == 0 {
		return models
	}
	kept := make([]Model, 0, len(allowed))
	for _, m := range models {
		if slices.Contains(allowed, m.ID) {
			kept = append(kept, m)
		}
	}
	return kept
}

func sameModels(a, b []Model) bool {
	return slices.EqualFunc(a, b, func(x, y Model) bool {
		return x.ID == y.ID && x.MaxModelLen == y.MaxModelLen && x.Parent == y.Parent
	})
}

func modelNames(models []Model) []string {
	names := make([]string, len(models))
	for i := range models {
		names[i] = models[i].ID
	}
	return names
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func whole(raw json.RawMessage) int {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return int(n)
}

func nested(raw json.RawMessage, key string) int {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return 0
	}
	return whole(m[key])
}
