package proxy

import (
	"fmt"
	"strings"
	"testing"
)

// C119: Claude Code's billing line never decides where a turn goes. It passes
// untouched, unless the operator wants it out: then the engine sees the stable
// text alone, and nobody else's words are touched.
func TestTheBillingLine(t *testing.T) {
	stable := strings.Repeat("stable words ", 300)
	line := func(n int) string { return fmt.Sprintf("x-anthropic-billing-header: v=1; n=A%dB;", n) }
	for name, form := range map[string]struct{ sent, stripped string }{
		"first block":         {`[{"type":"text","text":"LINE"}, {"type":"text","text":"STABLE","cache_control":{"type":"ephemeral"}}]`, `[ {"type":"text","text":"STABLE","cache_control":{"type":"ephemeral"}}]`},
		"last block":          {`[{"type":"text","text":"STABLE"} , {"text":"LINE","type":"text"} ]`, `[{"type":"text","text":"STABLE"} ]`},
		"only block":          {`[ {"type":"text","text":"LINE"} ]`, `[  ]`},
		"first line of block": {`[{"type":"text","text":"LINE\nSTABLE"}]`, `[{"type":"text","text":"STABLE"}]`},
		"first line of text":  {`"LINE\nSTABLE \\n x"`, `"STABLE \\n x"`},
		"text alone":          {`"LINE"`, `""`},
		"not at its start":    {`"STABLE LINE"`, ""},
		"no system":           {`null`, ""},
		"odd system":          {`{"text":"LINE"}`, ""},
	} {
		for _, strip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, strip), func(t *testing.T) {
				var all []*fakeEngine
				for _, n := range []string{"a", "b", "c"} {
					all = append(all, newFakeEngine(t, n, nil))
				}
				p := startProxy(t, fmt.Sprintf("identity.strip_billing_line = %v", strip), all...)
				where := ""
				for turn := range 5 {
					body := func(system string) string {
						b := `{"model":"m","system":` + system + `,"messages":[{"role":"user","content":"x-anthropic-billing-header: mine"}`
						for i := range turn {
							b += fmt.Sprintf(`,{"role":"assistant","content":"a %d"},{"role":"user","content":"u %d"}`, i, i)
						}
						return strings.ReplaceAll(strings.ReplaceAll(b+"]}", "LINE", line(turn)), "STABLE", stable)
					}
					got := p.post("/v1/messages", body(form.sent))
					if got.status != 200 {
						t.Fatalf("%d %s", got.status, got.body)
					}
					engine := got.header.Get("X-Warmring-Engine")
					if where == "" {
						where = engine
					}
					if engine != where && name != "not at its start" && name != "odd system" {
						t.Errorf("turn %d went to %s, the first to %s", turn, engine, where)
					}
					want := body(form.sent)
					if strip && form.stripped != "" {
						want = body(form.stripped)
					}
					for _, e := range all {
						if e.name == engine {
							calls := e.got()
							if sent := calls[len(calls)-1].body; sent != want {
								t.Fatalf("engine got %.200s\nwant %.200s", sent, want)
							}
						}
					}
				}
			})
		}
	}
}
