package e2e

import (
	"reflect"
	"testing"
)

// What the affinity tests conclude rests on this: each turn extends the one before, a fork extends its parent, and the same
// story under another salt has the same shape.
func TestStoriesGrowAndFork(t *testing.T) {
	story := Story{Salt: "one", Sessions: 6, Turns: 4, Forks: 2, System: 30, First: 20, More: 10}
	sessions := story.Write()
	if len(sessions) != 8 {
		t.Fatalf("%d sessions, want 6 and 2 forks", len(sessions))
	}
	for _, s := range sessions {
		for i := range s.Prompts[1:] {
			before, now := s.Prompts[i], s.Prompts[i+1]
			if len(now) != len(before)+2 || !reflect.DeepEqual(now[:len(before)], before) {
				t.Errorf("%s: turn %d does not extend turn %d", s.ID, i+2, i+1)
			}
		}
		if s.Parent == nil {
			if len(s.Prompts) != 4 {
				t.Errorf("%s has %d turns", s.ID, len(s.Prompts))
			}
			continue
		}
		asked := s.Parent.Prompts[s.From-1]
		if first := s.Prompts[0]; !reflect.DeepEqual(first[:len(asked)], asked) || reflect.DeepEqual(first, s.Parent.Prompts[s.From]) {
			t.Errorf("%s does not branch off its parent behind turn %d", s.ID, s.From)
		}
	}
	if !reflect.DeepEqual(sessions, story.Write()) {
		t.Error("the same story was written differently")
	}
	story.Salt = "two"
	for i, other := range story.Write() {
		for n, prompt := range other.Prompts {
			if prompt[0] == sessions[i].Prompts[n][0] {
				t.Errorf("%s turn %d begins as under the other salt", other.ID, n+1)
			}
			if !reflect.DeepEqual(prompt[1:], sessions[i].Prompts[n][1:]) {
				t.Errorf("%s turn %d has another shape under the other salt", other.ID, n+1)
			}
		}
	}
}
