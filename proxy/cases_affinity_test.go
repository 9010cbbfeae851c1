package proxy

import (
	"fmt"
	"strings"
	"testing"
)

// C100: the system prompt of an agent embeds a path with the session's id, so a fork differs from its parent after 3,000 words. Nobody
// says whose fork it is. It goes to its parent's engine all the same, for the tools and words that they share, not for a hash
// over the whole system prompt; with ids, without, and with tools before them.
func TestAForkThatNobodyAnnouncesFollowsWhatItShares(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprint("named ", named), func(t *testing.T) {
			p := startProxy(t, "", fleetOf(t, 4, nil)...)
			used := map[string]bool{}
			for seed := range 8 {
				ask := func(id string) answer {
					system := fmt.Sprint("agent ", seed, " ", strings.Repeat("word ", 3000), "/tmp/agent/", id, "/pad ", strings.Repeat("tail ", 500))
					body := fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"read_%d"}}]}`, system, seed)
					var header []string
					if named {
						header = []string{"X-Session-Id", fmt.Sprint(id, " of ", seed)}
					}
					return p.post("/v1/chat/completions", body, header...)
				}
				parent, fork := ask("ID-1"), ask("ID-2")
				used[engineOf(parent)] = true
				if engineOf(parent) != engineOf(fork) {
					t.Errorf("parent on %s, fork on %s (%s, %s warm)", engineOf(parent), engineOf(fork), fork.header.Get("X-Warmring-Reason"), fork.header.Get("X-Warmring-Warm"))
				}
				var warm, all float64
				if _, err := fmt.Sscanf(fork.header.Get("X-Warmring-Warm"), "%f/%f", &warm, &all); err != nil || warm < 0.6*all || warm > 0.95*all {
					t.Errorf("%s of the fork's tokens are taken for warm (%v), they share about 6 of 7", fork.header.Get("X-Warmring-Warm"), err)
				}
			}
			if len(used) < 2 {
				t.Errorf("all are on %v: meeting there proves nothing", used)
			}
		})
	}
}
