package prompt

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/warmring/warmring/ring/prompt/captured"
)

func familyOf(target string) Family {
	path, _, _ := strings.Cut(target, "?")
	switch path {
	case "/v1/chat/completions":
		return Chat
	case "/v1/completions":
		return Completions
	case "/v1/messages":
		return Messages
	case "/v1/responses":
		return Responses
	}
	return None
}

func load(t testing.TB, name string) []captured.Request {
	t.Helper()
	requests, err := captured.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// shared returns how many leading points two chains have in common.
func shared(a, b []Point) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Fingerprint == b[n].Fingerprint && a[n].Bytes == b[n].Bytes {
		n++
	}
	return n
}

// extends reports whether all of a's points are points of b.
func extends(a, b *Prompt) bool { return shared(a.Chain, b.Chain) == len(a.Chain) }

func TestEveryCapturedBodyIsUnderstood(t *testing.T) {
	bodies := 0
	for _, name := range captured.Names() {
		for i, q := range load(t, name) {
			p := read(q.Body, familyOf(q.Target))
			if p.Fallback != "" || string(p.ModelName([]byte(q.Body))) != "local-m" || len(p.Chain) == 0 || p.First < p.Head || p.First > len(p.Chain) {
				t.Errorf("%s request %d: fallback %q, model %q, %d points, head %d, first %d", name, i+1, p.Fallback, p.ModelName([]byte(q.Body)), len(p.Chain), p.Head, p.First)
			}
			if p.Stream != strings.Contains(q.Body, `"stream":true`) {
				t.Errorf("%s request %d: stream %v", name, i+1, p.Stream)
			}
			bodies++
		}
	}
	t.Log(bodies, "bodies")
}

// Every pair of requests whose messages go on from each other's, as listed independently of this package, has chains that
// go on from each other's, unless the tools or the system text in front of the messages changed (C023, C129).
func TestCapturedTurnsExtendTheOneBefore(t *testing.T) {
	pair := regexp.MustCompile(`(ext|BREAK)(@msg\d+/\d+)?(\(\d+/\d+\))?(!\S+)?`)
	held, broken := 0, 0
	for line := range strings.Lines(captured.Stability()) {
		head, verdicts, ok := strings.Cut(line, " | ")
		if !ok {
			t.Fatalf("a line without verdicts: %q", line)
		}
		name := strings.ReplaceAll(strings.Fields(head)[0], "/", "+")
		requests := load(t, name)
		for i, v := range pair.FindAllStringSubmatch(verdicts, -1) {
			a, b := requests[i], requests[i+1]
			pa, pb := read(a.Body, familyOf(a.Target)), read(b.Body, familyOf(b.Target))
			front := false
			for field := range strings.SplitSeq(strings.TrimPrefix(v[4], "!"), "+") {
				front = front || field == "tools" || field == "instructions" || field == "system"
			}
			want := v[1] == "ext" && !front
			// These break in the raw bytes by cache_control alone.
			if v[1] == "BREAK" && (name == "pi+anthropic" || name == "opencode+anthropic") {
				want = true
			}
			// Codex gives the items of a forked child new ids; one of its requests goes on from the parent's in substance.
			if got := extends(pa, pb); got != want {
				t.Errorf("%s, request %d to %d, listed as %s: extends %v, want %v (%d of %d points)", name, i+1, i+2, v[0], got, want, shared(pa.Chain, pb.Chain), len(pa.Chain))
			} else if got {
				held++
			} else {
				broken++
			}
		}
	}
	t.Logf("%d pairs extend, %d do not", held, broken)
}

// A fork of a Codex thread has new ids everywhere, but its prompt goes on from its origin's.
func TestACodexForkGoesOnFromItsOrigin(t *testing.T) {
	origin, fork := load(t, "codex"), load(t, "codex+fork")
	last := origin[2] // forked after the third request and its answer
	for i, q := range origin {
		pa, pb := read(q.Body, Responses), read(fork[0].Body, Responses)
		t.Log(i+1, shared(pa.Chain, pb.Chain), len(pa.Chain), len(pb.Chain))
	}
	if a, b := read(last.Body, Responses), read(fork[0].Body, Responses); !extends(a, b) {
		t.Errorf("shares %d of %d points", shared(a.Chain, b.Chain), len(a.Chain))
	}
}

// A chat fork that brings a further tool shares what stands before that tool; the messages come after it in the engine.
func TestAForkWithAFurtherToolSharesTheToolsBeforeIt(t *testing.T) {
	for _, client := range []string{"opencode", "kilo"} {
		a, b := load(t, client)[2], load(t, client+"+fork")[0]
		pa, pb := read(a.Body, Chat), read(b.Body, Chat)
		t.Logf("%s: %s", client, fmt.Sprint(shared(pa.Chain, pb.Chain), " of ", len(pa.Chain)))
	}
}
