package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// segment is a piece of a body's turns: a text, and what it is.
type segment struct{ mark, text string }

// flatten takes turns apart with encoding/json: texts on the one hand, all else as marks.
func flatten(v any, path string, to []segment) []segment {
	m, ok := v.(map[string]any)
	if !ok {
		if text, ok := v.(string); ok {
			return append(to, segment{path, text})
		}
		if list, ok := v.([]any); ok {
			for i, v := range list {
				to = flatten(v, fmt.Sprintf("%s[%d]", path, i), to)
			}
			return to
		}
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return append(to, segment{path + string(raw), ""})
	}
	rest := map[string]any{}
	said := "text" // the member that says something
	if kind, _ := m["type"].(string); strings.HasSuffix(kind, "_output") && strings.HasPrefix(path, "[") {
		said = "output"
	} else if m["role"] != nil || kind == "tool_result" {
		said = "content"
	}
	list, isList := m[said].([]any)
	text, isText := m[said].(string)
	for k, v := range m {
		if k != said || !(isList || isText) {
			rest[k] = v
		}
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		panic(err)
	}
	to = append(to, segment{path + string(raw), ""})
	for i, v := range list {
		to = flatten(v, fmt.Sprintf("%s.%s[%d]", path, said, i), to)
	}
	if isText {
		to = append(to, segment{path + "." + said, text})
	}
	return to
}

// turnsOf returns a body's turns and its other members.
func turnsOf(t fataler, body []byte, family Family) (turns []segment, last map[string]any, others map[string]json.RawMessage) {
	if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), &others); err != nil {
		t.Fatalf("not JSON: %v: %s", err, body)
	}
	key := map[Family]string{Chat: "messages", Messages: "messages", Responses: "input", Completions: "prompt"}[family]
	var v any
	if err := json.Unmarshal(others[key], &v); err != nil {
		t.Fatalf("no turns: %v: %s", err, body)
	}
	delete(others, key)
	list, ok := v.([]any)
	if !ok {
		return flatten(v, "", nil), nil, others
	}
	for i, v := range list {
		turns = flatten(v, fmt.Sprint("[", i, "]"), turns)
	}
	last, _ = list[len(list)-1].(map[string]any)
	return turns, last, others
}

// checkSlices checks what holds for every slice of a body, and returns its share of the turns' text in bytes.
func checkSlices(t fataler, body []byte, family Family, share float64) (text int, ok bool) {
	before := bytes.Clone(body)
	slice, ok := AppendSlice(nil, body, family, share)
	if !bytes.Equal(body, before) {
		t.Fatalf("the body was changed")
	}
	if !ok {
		return 0, false
	}
	wholeTurns, _, wholeMembers := turnsOf(t, body, family)
	turns, last, members := turnsOf(t, slice, family)
	if role, _ := last["role"].(string); role == "assistant" {
		t.Fatalf("ends on an assistant's turn: %s", slice)
	}
	for _, k := range []string{"tools", "functions", "system", "instructions", "model", "tool_choice", "cache_salt"} {
		if string(members[k]) != string(wholeMembers[k]) {
			t.Fatalf("%s is %s, was %s", k, members[k], wholeMembers[k])
		}
	}
	if string(members["stream"]) != "false" {
		t.Fatalf("streams: %s", slice)
	}
	// Equal up to one text, which is a prefix; what follows says nothing.
	i, j := 0, 0
	for i < len(turns) && i < len(wholeTurns) && turns[i] == wholeTurns[i] {
		text += len(turns[i].text)
		i++
	}
	if i == len(wholeTurns) {
		t.Fatalf("share %v: nothing was cut: %s", share, slice)
	}
	if j = i; i < len(turns) && turns[i].text != "" {
		if turns[i].mark != wholeTurns[i].mark || !strings.HasPrefix(wholeTurns[i].text, turns[i].text) {
			t.Fatalf("%q is no prefix of %q", turns[i], wholeTurns[i])
		}
		text += len(turns[i].text)
		i, j = i+1, i+1
	}
	for ; i < len(turns); i++ {
		for j < len(wholeTurns) && wholeTurns[j].mark != turns[i].mark {
			j++
		}
		if j == len(wholeTurns) || turns[i].text != "" {
			t.Fatalf("%q behind the cut: %s", turns[i], slice)
		}
	}
	return text, true
}

// drawSession draws an agent's session as a client of the family writes it; it ends on a user's or a tool's turn. A completion is a text or ids.
func drawSession(t *rapid.T, family Family) []byte {
	lists := rapid.Bool().Draw(t, "lists")
	text := func(label string) string { return string(quoted(nil, "\u00e9"+drawText(t, label))) }
	if family == Completions {
		if lists {
			ids := rapid.SliceOfN(rapid.IntRange(0, 1<<17), 2, 2000).Draw(t, "ids")
			return []byte(`{"model":"m","prompt":` + strings.ReplaceAll(fmt.Sprint(ids), " ", ", ") + `,"max_tokens":9}`)
		}
		return []byte(`{"model":"m","stream":true,"prompt":` + text("prompt") + `}`)
	}
	kind := "text"
	if family == Responses {
		kind = "input_text"
	}
	content := func(label string) string {
		if !lists {
			return text(label)
		}
		var parts []string
		for range rapid.IntRange(1, 3).Draw(t, "parts") {
			parts = append(parts, `{"type":"`+kind+`","text":`+text(label)+`}`)
		}
		return "[" + strings.Join(parts, " , ") + "]"
	}
	var turns []string
	if family == Chat && rapid.Bool().Draw(t, "has system") {
		turns = append(turns, `{"role":"system","content":`+text("system")+`}`)
	}
	turns = append(turns, `{"role":"user","content":`+content("first")+`}`)
	for round := range rapid.IntRange(0, 5).Draw(t, "rounds") {
		calls := rapid.IntRange(0, 3).Draw(t, "calls")
		said := text("said")
		var asked, answers []string
		for i := range calls {
			id := fmt.Sprintf(`"c%d_%d"`, round, i)
			switch family {
			case Chat:
				asked = append(asked, `{"id":`+id+`,"type":"function","function":{"name":"f","arguments":"{}"}}`)
				answers = append(answers, `{"role":"tool","tool_call_id":`+id+`,"content":`+content("answer")+`}`)
			case Messages:
				asked = append(asked, `{"type":"tool_use","id":`+id+`,"name":"f","input":{"a":1}}`)
				answers = append(answers, `{"type":"tool_result","tool_use_id":`+id+`,"content":`+content("answer")+`}`)
			case Responses:
				asked = append(asked, `{"type":"function_call","call_id":`+id+`,"name":"f","arguments":"{}"}`)
				answers = append(answers, `{"type":"function_call_output","output":`+content("answer")+`,"call_id":`+id+`}`)
			}
		}
		switch family {
		case Chat:
			if calls > 0 {
				turns = append(turns, `{"role":"assistant","content":`+said+`,"tool_calls":[`+strings.Join(asked, ",")+`]}`)
				turns = append(turns, answers...)
			} else {
				turns = append(turns, `{"role":"assistant","content":`+said+`}`, `{"role":"user","content":`+content("user")+`}`)
			}
		case Messages:
			turns = append(turns, `{"role":"assistant","content":[`+strings.Join(append([]string{`{"type":"text","text":` + said + `}`}, asked...), ",")+`]}`)
			if calls == 0 || rapid.Bool().Draw(t, "adds") {
				answers = append(answers, `{"type":"text","text":`+text("user")+`}`)
			}
			turns = append(turns, `{"role":"user","content":[`+strings.Join(answers, ", ")+`]}`)
		case Responses:
			turns = append(turns, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":`+said+`}]}`)
			turns = append(turns, append(asked, answers...)...)
			if calls == 0 {
				turns = append(turns, `{"role":"user","content":`+content("user")+`}`)
			}
		}
	}
	members := []string{`"model":"m"`, `"stream":true`}
	if rapid.Bool().Draw(t, "tools") {
		members = append(members, `"tools":[{"type":"function","name":"f","function":{"name":"f","description":`+text("tool")+`}}]`)
	}
	switch name := map[Family]string{Messages: "system", Responses: "instructions"}[family]; {
	case name != "" && rapid.Bool().Draw(t, "has system"):
		members = append(members, `"`+name+`":`+text("system"))
	}
	members = append(members, `"max_tokens":100`, `"`+map[Family]string{Chat: "messages", Messages: "messages", Responses: "input"}[family]+`":[`+strings.Join(turns, ",\n")+`]`)
	return []byte("{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), ", ") + "}")
}

func TestSlicesOfASessionGrowWithTheirShare(t *testing.T) {
	sliced := 0
	rapid.Check(t, func(t *rapid.T) {
		family := rapid.SampledFrom([]Family{Chat, Messages, Responses, Completions}).Draw(t, "family")
		body := drawSession(t, family)
		shares := rapid.SliceOfN(rapid.IntRange(1, 999), 1, 12).Draw(t, "shares")
		sort.Ints(shares)
		last := 0
		for _, per := range shares {
			text, ok := checkSlices(t, body, family, float64(per)/1000)
			if !ok {
				continue
			}
			sliced++
			if text < last {
				t.Fatalf("share %d has %d bytes of text, a smaller one %d", per, text, last)
			}
			last = text
		}
	})
	if sliced == 0 {
		t.Error("nothing was sliced")
	}
}
