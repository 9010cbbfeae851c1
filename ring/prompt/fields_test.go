package prompt

import (
	"strings"
	"testing"
)

func TestEveryIdentityFieldIsFound(t *testing.T) {
	for _, name := range FieldNames() {
		body := `{"` + name + `":"the \"id\""}`
		if in, key, ok := strings.Cut(name, "."); ok {
			body = `{"` + in + `":{"x":[{}],"` + key + `":"the \"id\""}}`
		}
		p := read(body, Chat)
		if got := string(p.Field([]byte(body), name)); got != `the \"id\"` || len(p.Fields) != 1 {
			t.Errorf("%s: %q of %v", name, got, p.Fields)
		}
	}
}

func TestIdentityFieldsFollowTheLastWord(t *testing.T) {
	for _, c := range []struct{ body, name, want string }{
		{`{"conversation":{"id":"c1"}}`, "conversation", "c1"},
		{`{"conversation":{"id":"c1"},"conversation":"c2"}`, "conversation", "c2"},
		{`{"conversation":"c2","conversation":{"id":"c1"}}`, "conversation", "c1"},
		{`{"session_id":"a","session_id":null}`, "session_id", ""},
		{`{"session_id":""}`, "session_id", ""},
		{`{"session_id":17}`, "session_id", "17"},
		{`{"session_id":["a"]}`, "session_id", ""},
		{`{"metadata":{"user_id":"u"},"metadata":null}`, "metadata.user_id", ""},
		{`{"metadata":{"user_id":"u","user_id":"v"}}`, "metadata.user_id", "v"},
		{`{"messages":[{"session_id":"deep"}]}`, "session_id", ""},
	} {
		p := read(c.body, Chat)
		if got := string(p.Field([]byte(c.body), c.name)); got != c.want {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}

func TestTheModelAndTheFlagsFollowTheLastWord(t *testing.T) {
	body := func(s string) *Prompt { return read(s, Chat) }
	for s, want := range map[string]string{
		`{"model":"a","model":"b"}`: "b", `{"model":"a","model":null}`: "", `{"model":7}`: "", `{"model":""}`: "",
		`{"model":"org\/m"}`: "org/m", `{"model":"a","messages":[{"model":"b"}]}`: "a",
	} {
		if got := string(body(s).ModelName([]byte(s))); got != want {
			t.Errorf("%s: model %q, want %q", s, got, want)
		}
	}
	for s, want := range map[string]int{
		`{"max_tokens":5}`: 5, `{"max_tokens":5,"max_completion_tokens":6}`: 6, `{"max_completion_tokens":null,"max_tokens":5}`: 5,
		`{"max_output_tokens":7}`: 7, `{"max_tokens":-1}`: 0, `{"max_tokens":1e3}`: 0, `{"max_tokens":"5"}`: 0, `{"max_tokens":99999999999}`: 0,
	} {
		if got := body(s).MaxTokens; got != want {
			t.Errorf("%s: limit %d, want %d", s, got, want)
		}
	}
	if p := body(`{"stream":true,"stream":false}`); p.Stream {
		t.Error("stream")
	}
	p := body(`{"stream_options":{"include_usage":true},"stream_options":{"x":{}}}`)
	if p.IncludeUsage || p.StreamOptions.End-p.StreamOptions.Start != len(`{"x":{}}`) {
		t.Errorf("stream options %v", p.StreamOptions)
	}
	if p := body(" {\n} "); !p.EmptyObject || p.Open != 2 {
		t.Errorf("open %d, empty %v", p.Open, p.EmptyObject)
	}
}
