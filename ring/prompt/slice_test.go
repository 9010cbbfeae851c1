package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/warmring/warmring/ring/prompt/captured"
)

func words(n int) string { return strings.TrimSuffix(strings.Repeat("word ", n), " ") }

// short writes runs of words and the like as their number.
func short(body string) string {
	body = regexp.MustCompile(`word( word)*`).ReplaceAllStringFunc(body, func(w string) string { return fmt.Sprintf("<%d words>", len(w)/5+1) })
	return regexp.MustCompile(`A{9,}`).ReplaceAllString(body, "<A>")
}

func TestASliceEndsWhereAPromptMayEnd(t *testing.T) {
	long, w100, w40 := words(200), words(100), words(40)
	for _, c := range []struct {
		name   string
		family Family
		share  float64
		body   string
		want   string // without what is appended to limit the output; "" = none
	}{
		{"inside a user's text, at a blank", Chat, 0.5,
			`{"model":"m","messages":[{"role":"user","content":"` + long + `","name":"ann"}],"max_tokens":9}`,
			`{"model":"m","messages":[{"role":"user","content":"` + words(99) + `","name":"ann"}]`},
		{"before an assistant's answer", Chat, 0.5,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"` + long + `"},{"role":"user","content":"ho"}]}`,
			`{"messages":[{"role":"user","content":"hi"}]`},
		{"before a call of tools, not between call and answer", Chat, 0.4,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"` + long + `"}}]},{"role":"tool","tool_call_id":"c","content":"` + w40 + `"}]}`,
			`{"messages":[{"role":"user","content":"hi"}]`},
		{"inside a tool's answer", Chat, 0.6,
			`{"messages":[{"content":"hi","role":"user"},{"role":"assistant","tool_calls":[{"id":"c"}]},{"role":"tool","content":"` + long + `","tool_call_id":"c"},{"role":"assistant","content":"x"}]}`,
			`{"messages":[{"content":"hi","role":"user"},{"role":"assistant","tool_calls":[{"id":"c"}]},{"role":"tool","content":"` + words(118) + `","tool_call_id":"c"}]`},
		{"the answers to parallel calls stay, emptied", Chat, 0.4,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"},{"id":"c"}]},{"role":"tool","tool_call_id":"a","content":"` + long + `"},{"role":"tool","tool_call_id":"b","content":"` + w100 + `"}, {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":"x"}]}`,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"},{"id":"c"}]},{"role":"tool","tool_call_id":"a","content":"` + words(115) + `"},{"role":"tool","tool_call_id":"b","content":""}, {"role":"tool","tool_call_id":"c","content":[]}]`},
		{"not in the system text: in the first place behind it", Chat, 0.1,
			`{"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"` + w40 + `"}]}`,
			`{"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"` + words(13) + `"}]`},
		{"in a later system message", Chat, 0.7,
			`{"messages":[{"role":"user","content":"hi"},{"role":"developer","content":"` + long + `"}]}`,
			`{"messages":[{"role":"user","content":"hi"},{"role":"developer","content":"` + words(136) + `"}]`},
		{"tools come first, wherever they stand", Chat, 0.8,
			`{"messages":[{"role":"user","content":"` + long + `"}],"tools":[{"type":"function","function":{"name":"` + long + `"}}]}`,
			`{"messages":[{"role":"user","content":"` + words(117) + `"}],"tools":[{"type":"function","function":{"name":"` + long + `"}}]`},
		{"a part of a list, and nothing of the later ones", Chat, 0.3,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + long + `","cache_control":{"type":"ephemeral"}},{"type":"text","text":"` + long + `"}],"name":"ann"}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + words(117) + `","cache_control":{"type":"ephemeral"}}],"name":"ann"}]`},
		{"behind an image, whose bytes do not count", Chat, 0.5,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + words(10) + `"},{"type":"image_url","image_url":{"url":"data:` + strings.Repeat("A", 9999) + `"}},{"type":"text","text":"` + w100 + `"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + words(10) + `"},{"type":"image_url","image_url":{"url":"data:` + strings.Repeat("A", 9999) + `"}},{"type":"text","text":"` + words(33) + `"}]}]`},
		{"order and white space stay", Chat, 0.5,
			"\xef\xbb\xbf" + ` { "temperature" : 0 , "n" : 3 , "messages" : [ { "role" : "user" , "content" : "` + long + `" } , {"role":"assistant"} ] , "stream" : true , "user" : "u" } `,
			`{"temperature" : 0,"messages" : [ { "role" : "user" , "content" : "` + words(99) + `" }],"user" : "u"`},

		{"Anthropic: a text behind the tools' answers", Messages, 0.8,
			`{"system":"s","messages":[{"role":"user","content":"` + long + `"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"},{"type":"text","text":"` + long + `"},{"type":"text","text":"x"}]}]}`,
			`{"system":"s","messages":[{"role":"user","content":"` + long + `"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"},{"type":"text","text":"` + words(116) + `"}]}]`},
		{"Anthropic: all answers stay, those behind the cut emptied, other parts go", Messages, 0.3,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"` + w100 + `"},{"type":"image"}]},{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"` + long + `"}],"is_error":true},{"type":"text","text":"x"}]}]}`,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"` + words(61) + `"}]},{"type":"tool_result","tool_use_id":"b","content":[],"is_error":true}]}]`},
		{"Anthropic: an answer behind a text moves in some engines, so nothing ends before it", Messages, 0.5,
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"text","text":"` + long + `"},{"type":"tool_result","tool_use_id":"a","content":"` + long + `"}]}]}`,
			`{"messages":[{"role":"user","content":"hi"}]`},
		{"Anthropic: a thinking budget must lie below the limit", Messages, 0.5,
			`{"thinking":{"budget_tokens":2048,"type":"enabled"},"messages":[{"role":"user","content":"` + long + `"}],"max_tokens":4096}`,
			`{"messages":[{"role":"user","content":"` + words(97) + `"}],"thinking":{"type":"adaptive"}`},
		{"Anthropic: no thinking stays none", Messages, 0.5,
			`{"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"` + long + `"}]}`,
			`{"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"` + words(97) + `"}]`},

		{"Responses: a text", Responses, 0.5, `{"input":"` + long + `","instructions":"be kind","store":true}`, `{"input":"` + words(99) + `","instructions":"be kind"`},
		{"Responses: what a tool put out", Responses, 0.5,
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning","id":"r","encrypted_content":"` + strings.Repeat("A", 9999) + `"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"` + long + `"},{"type":"custom_tool_call_output","call_id":"b","output":"` + w100 + `"},{"role":"user","content":"x"}]}`,
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning","id":"r","encrypted_content":"` + strings.Repeat("A", 9999) + `"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"` + words(129) + `"},{"type":"custom_tool_call_output","call_id":"b","output":""}]`},
		{"Responses: not behind a reference or reasoning", Responses, 0.9,
			`{"input":[{"role":"user","content":"hi"},{"type":"item_reference","id":"` + long + `"},{"type":"reasoning"},{"role":"assistant","content":"x"}],"background":false}`,
			`{"input":[{"role":"user","content":"hi"}]`},

		{"Completions: a text", Completions, 0.5, `{"prompt":"` + long + `","echo":true,"best_of":4}`, `{"prompt":"` + words(100) + `"`},
		{"Completions: a list of one text", Completions, 0.5, `{"prompt": ["` + long + `" ] }`, `{"prompt": ["` + words(100) + `" ]`},
		{"Completions: token ids", Completions, 0.5, `{"prompt":[10,20,30, 40,50]}`, `{"prompt":[10,20]`},
		{"Completions: token ids, the first place", Completions, 0.01, `{"prompt":[10,20,30]}`, `{"prompt":[10]`},
		{"Completions: a list of one list of token ids", Completions, 0.5, `{"prompt":[[10,20,30,40]]}`, `{"prompt":[[10]]`},

		{"nothing to cut: one short text", Chat, 0.5, `{"messages":[{"role":"user","content":"hi"}]}`, ``},
		{"nothing to cut: only system text", Chat, 0.5, `{"messages":[{"role":"system","content":"` + long + `"}]}`, ``},
		{"nothing to cut: all behind the last place is the share", Chat, 0.99, `{"messages":[{"role":"user","content":"hi"},{"role":"user","content":"` + words(3) + `","name":"` + long + `"}]}`, ``},
		{"nothing to cut: the last answers are empty", Chat, 0.99, `{"messages":[{"role":"user","content":"hi"},{"role":"tool","content":"ok"},{"role":"tool","content":""},{"role":"tool"}]}`, ``},
		{"an empty text", Chat, 0.5, `{"messages":[{"role":"user","content":""},{"role":"assistant","content":"` + long + `"}]}`, ``},
		{"no turns", Chat, 0.5, `{"model":"m"}`, ``},
		{"turns of another family", Chat, 0.5, `{"input":"` + long + `"}`, ``},
		{"turns that are no list", Chat, 0.5, `{"messages":"` + long + `"}`, ``},
		{"turns that are no objects", Chat, 0.5, `{"messages":["` + long + `"]}`, ``},
		{"turns twice", Chat, 0.5, `{"messages":[{"role":"user","content":"` + long + `"}],"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
		{"content twice", Chat, 0.5, `{"messages":[{"role":"user","content":"` + long + `","content":"` + long + `"}]}`, ``},
		{"an escaped key outside", Chat, 0.5, `{"messages":[{"role":"user","content":"` + long + `"}],"max\u005ftokens":9}`, ``},
		{"an escaped key in a message", Chat, 0.5, `{"messages":[{"role":"user","c\u006fntent":"` + long + `"}]}`, ``},
		{"an escaped key in a part", Chat, 0.5, `{"messages":[{"role":"user","content":[{"type":"text","te\u0078t":"x","text":"` + long + `"}]}]}`, ``},
		{"bytes behind", Chat, 0.5, `{"messages":[{"role":"user","content":"` + long + `"}]}x`, ``},
		{"cut off", Chat, 0.5, `{"messages":[{"role":"user","content":"` + long + `"}]`, ``},
		{"truncation by the engine", Chat, 0.5, `{"truncate_prompt_tokens":9,"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
		{"Responses: truncation by the engine", Responses, 0.5, `{"truncation":"auto","input":"` + long + `"}`, ``},
		{"Responses: null is no disabled truncation to every engine", Responses, 0.5, `{"truncation":null,"input":"` + long + `"}`, ``},
		{"Responses: truncation is disabled", Responses, 0.5, `{"truncation":"disabled","input":"` + long + `"}`, `{"truncation":"disabled","input":"` + words(100) + `"`},
		{"truncation is no member of chats", Chat, 0.5, `{"truncation":"auto","messages":[{"role":"user","content":"` + long + `"}]}`, `{"truncation":"auto","messages":[{"role":"user","content":"` + words(97) + `"}]`},
		{"a hand-over between engines", Chat, 0.5, `{"kv_transfer_params":{},"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
		{"in the background", Responses, 0.5, `{"input":"` + long + `","background":true}`, ``},
		{"a stored conversation", Responses, 0.5, `{"input":"` + long + `","conversation":"c"}`, ``},
		{"a stored prompt", Responses, 0.5, `{"input":"` + long + `","prompt":{"id":"p"}}`, ``},
		{"several prompts", Completions, 0.5, `{"prompt":["` + long + `","x"]}`, ``},
		{"several prompts of ids", Completions, 0.5, `{"prompt":[[1,2,3],[4]]}`, ``},
		{"ids and texts", Completions, 0.5, `{"prompt":[1,"x",2]}`, ``},
		{"a text with a suffix", Completions, 0.5, `{"prompt":"` + long + `","suffix":"x"}`, ``},
		{"no family", None, 0.5, `{"prompt":"` + long + `"}`, ``},
		{"no share", Chat, 0, `{"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
		{"all of it", Chat, 1, `{"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
		{"no number", Chat, math.NaN(), `{"messages":[{"role":"user","content":"` + long + `"}]}`, ``},
	} {
		slice, ok := AppendSlice([]byte("before"), []byte(c.body), c.family, c.share)
		if !bytes.HasPrefix(slice, []byte("before")) {
			t.Errorf("%s: what was in dst is gone", c.name)
			continue
		}
		got := string(slice[len("before"):])
		if c.want == "" {
			if ok || got != "" {
				t.Errorf("%s: want none, got %s", c.name, got)
			}
			continue
		}
		limit := map[Family]string{Responses: `,"store":false,"max_output_tokens":3}`}[c.family]
		if limit == "" {
			limit = `,"max_tokens":1}`
		}
		if got, want := short(got), short(c.want+`,"stream":false`+limit); !ok || got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
	}
}

// The limit has the name that the client uses: engines that know only one of the two forbid the other.
func TestASliceLimitsTheOutputUnderTheClientsName(t *testing.T) {
	for limits, want := range map[string]string{
		``:                              `,"max_tokens":1}`,
		`,"max_tokens":7`:               `,"max_tokens":1}`,
		`,"max_completion_tokens":7`:    `,"max_completion_tokens":1}`,
		`,"max_completion_tokens":null`: `,"max_tokens":1}`,
		`,"max_completion_tokens":7,"max_tokens":7`: `,"max_completion_tokens":1,"max_tokens":1}`,
	} {
		slice, ok := AppendSlice(nil, []byte(`{"messages":[{"role":"user","content":"`+words(100)+`"}]`+limits+`}`), Chat, 0.5)
		if !ok || !strings.HasSuffix(string(slice), `],"stream":false`+want) {
			t.Errorf("%q: %v, %s", limits, ok, slice)
		}
	}
}

// A text is never cut inside an escape, a pair of surrogates or a rune, and white space in reach decides where.
func TestATextIsCutBetweenCharacters(t *testing.T) {
	const raw = `\\ud83dza\n\n  b\\\\\\n\ud83d\ude00\ud83d\ude00é漢字😀\"x\u00e9y\\ \u0041`
	var whole string
	if err := json.Unmarshal([]byte(`"`+raw+`"`), &whole); err != nil {
		t.Fatal(err)
	}
	for name, cut := range map[string]func(b []byte, start, goal int) int{"at white space": cutAt, "anywhere": boundary} {
		last := 0
		for goal := range len(raw) {
			at := cut([]byte(raw+`"`), 0, goal)
			if at < last || at > goal || (name == "anywhere" && goal-at > 11) {
				t.Fatalf("%s: goal %d gives %d, the one before %d", name, goal, at, last)
			}
			last = at
			var text string
			if err := json.Unmarshal([]byte(`"`+raw[:at]+`"`), &text); err != nil || !strings.HasPrefix(whole, text) {
				t.Fatalf("%s: %q: %v", name, raw[:at], err)
			}
		}
	}
	for _, c := range []struct {
		text string
		goal int
		want string
	}{
		{"one two three four", 12, "one two"},
		{"one two three four", 13, "one two three"},
		{`one\n\n\ttwo three`, 11, "one"},
		{`one\\nothing`, 8, `one\\not`},
		{strings.Repeat("x", 40) + " " + strings.Repeat("y", 100), 90, strings.Repeat("x", 40)},
		{strings.Repeat("x", 40) + " " + strings.Repeat("y", 100), 120, strings.Repeat("x", 40) + " " + strings.Repeat("y", 79)},
	} {
		if at := cutAt([]byte(c.text+`"`), 0, c.goal); c.text[:at] != c.want {
			t.Errorf("%q at %d: %q", c.text, c.goal, c.text[:at])
		}
	}
}

// No member that only concerns the output is left, and what can change the prompt is.
func TestASliceKeepsWhatCanChangeThePrompt(t *testing.T) {
	keep := `"tools":[],"tool_choice":"auto","response_format":{"type":"text"},"chat_template":"x","chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,"reasoning_effort":"low","documents":[],"cache_salt":"s","user":"u","metadata":{"n":1},"lora_path":"l","priority":-3,"session_id":"z","rid":"r"`
	drop := `"stream":true,"stream_options":{"include_usage":true},"n":2,"max_tokens":5,"min_tokens":4,"logprobs":true,"top_logprobs":5,"prompt_logprobs":null,"echo":false,"store":true,"return_token_ids":true,"continue_final_message":true,"guided_json":{"n":2}`
	var members []string
	k, d := strings.Split(keep, `,"`), strings.Split(drop, `,"`)
	for i := range k {
		members = append(members, `"`+strings.TrimPrefix(k[i], `"`))
		if i < len(d) {
			members = append(members, `"`+strings.TrimPrefix(d[i], `"`))
		}
	}
	turns := `"messages":[{"role":"user","content":"` + words(100) + `"}]`
	slice, ok := AppendSlice(nil, []byte(`{`+strings.Join(members, ",")+`,`+turns+`}`), Chat, 0.5)
	if want := `{` + keep + `,"messages":[{"role":"user","content":"`; !ok || !strings.HasPrefix(string(slice), want) {
		t.Errorf("got %s\nwant %s", slice, want)
	}
}

// Every captured client's body can be cut, if there is text enough behind the head.
func TestSlicesOfCapturedBodies(t *testing.T) {
	sliced, whole := 0, 0
	for _, name := range captured.Names() {
		for _, q := range load(t, name) {
			family, n := familyOf(q.Target), 0
			for _, share := range []float64{0.3, 0.9} {
				if _, ok := checkSlices(t, []byte(q.Body), family, share); ok {
					n++
				}
			}
			if n > 0 {
				sliced++
			} else {
				whole++
			}
		}
	}
	t.Logf("%d bodies sliced, %d not", sliced, whole)
	if sliced < 200 { // the others hold one short text behind the head
		t.Errorf("only %d bodies of %d can be sliced", sliced, sliced+whole)
	}
}

func TestSlicingDoesNotAllocate(t *testing.T) {
	body := agentBody(200<<10, 40, 10)
	dst := make([]byte, 0, len(body)+256)
	if n := testing.AllocsPerRun(20, func() {
		if _, ok := AppendSlice(dst, body, Chat, 0.7); !ok {
			t.Fatal("not sliced")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever is damaged in a body, slicing it does not panic.
func TestDamagedBodiesAreNoDanger(t *testing.T) {
	body := agentBody(6<<10, 8, 2)
	if err := quick.Check(func(at uint16, c byte, share uint8) bool {
		b := bytes.Clone(body)
		b[int(at)%len(b)] = c
		slice, ok := AppendSlice(nil, b[:len(b)-int(share)%3], Chat, float64(share)/256)
		return !ok || !json.Valid(b) || json.Valid(slice)
	}, &quick.Config{MaxCount: 3000}); err != nil {
		t.Error(err)
	}
}

func BenchmarkAppendSlice(b *testing.B) {
	body := agentBody(450<<10, 160, 30)
	for _, share := range []float64{0.1, 0.5, 0.9} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			dst := make([]byte, 0, len(body)+256)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			least := time.Hour
			for b.Loop() {
				start := time.Now()
				if _, ok := AppendSlice(dst, body, Chat, share); !ok {
					b.Fatal("not sliced")
				}
				least = min(least, time.Since(start))
			}
			b.ReportMetric(float64(least), "min-ns/op")
		})
	}
}
