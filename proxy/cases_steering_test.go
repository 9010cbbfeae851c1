package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// C140: the proxy orders by itself and asks no engine for a priority: which number goes first differs from engine to engine, some
// refuse the member, and none interrupts a prefill for it. A client's own member is the client's word and passes as it stands, as
// all of the body does. The headers that say the same are taken off, see TestOwnAndInternalHeaders.
func TestAClientsOwnPriorityIsKeptAndNoneIsAdded(t *testing.T) {
	for _, kind := range []string{"vllm", "sglang", "custom"} {
		for _, f := range families {
			t.Run(kind+" "+f.name, func(t *testing.T) {
				e := newFakeEngine(t, "a", nil)
				e.toml = "kind = \"" + kind + "\""
				p := startProxy(t, "", e)
				const members = `"priority":-5,"routed_dp_rank":1,"kv_transfer_params":{"remote_host":"10.9.9.9"},`
				own := strings.Replace(f.body, "{", "{"+members, 1)
				p.post(f.path, f.body)
				p.post(f.path, own)
				got := e.got()
				if strings.Contains(got[0].body, "priority") {
					t.Errorf("the engine was sent a priority that nobody gave: %s", got[0].body)
				}
				if !strings.Contains(got[1].body, members) || strings.Count(got[1].body, "priority") != 1 {
					t.Errorf("the engine was sent %s", got[1].body)
				}
			})
		}
	}
}

// C140: an engine that was not started with priorities refuses them. That is its client's affair: it hears the engine's own words, no
// other engine is asked, and this one goes on with everybody else's turns.
func TestAnEngineThatKnowsNoPrioritiesStaysInUse(t *testing.T) {
	const words = `{"error":{"message":"Priority scheduling is not enabled.","type":"BadRequestError","code":400}}`
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"priority"`) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, words)
			return
		}
		fmt.Fprint(w, "{}")
	}
	a, b := newFakeEngine(t, "a", answer), newFakeEngine(t, "b", answer)
	p := startProxy(t, "", a, b)
	for i := range 10 {
		body := strings.Replace(chat(fmt.Sprint("urgent ", i)), "{", `{"priority":-5,`, 1)
		if got := p.post("/v1/chat/completions", body); got.status != 400 || got.body != words {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if n := len(a.got()) + len(b.got()); n != 10 {
		t.Errorf("ten requests were sent %d times", n)
	}
	for _, e := range p.fleet.Engines() {
		if e.State().String() != "ready" {
			t.Errorf("%s is %s", e.Name, e.State())
		}
	}
	if got := p.post("/v1/chat/completions", chat("just a turn")); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// C218: engines that have one model in memory at a time and throw it out for another name. Their operator says which model each
// of them is for, and no request for the other one reaches it, whatever it lists, busy or idle, not even when nobody else is left.
func TestAnEngineThatSwapsModelsKeepsTheOneItIsFor(t *testing.T) {
	next := make(chan struct{})
	swapper := func(name, model string) *fakeEngine {
		e := newFakeEngine(t, name, func(w http.ResponseWriter, r *http.Request) {
			events(w, helloEvent)
			if r.Header.Get("X-Slow") != "" {
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
			events(w, stopEvent, doneEvent)
		})
		e.models = `{"object":"list","data":[{"id":"A","object":"model"},{"id":"B","object":"model"}]}`
		e.toml = fmt.Sprintf("models = [%q]", model)
		return e
	}
	a, b := swapper("a", "A"), swapper("b", "B")
	p := startProxy(t, "retry.wait = \"0s\"", a, b)
	of := func(model, text string) string {
		return strings.Replace(chatStream(text), `"model":"m"`, fmt.Sprintf(`"model":%q`, model), 1)
	}
	stream := make(chan answer, 1)
	go func() { stream <- p.post("/v1/chat/completions", of("A", "a long story"), "X-Slow", "1") }()
	eventually(t, "the story to begin", func() bool { return len(a.got()) == 1 })
	for i := range 20 {
		if got := p.post("/v1/chat/completions", of("B", fmt.Sprint("turn ", i))); got.status != 200 || engineOf(got) != "b" {
			t.Errorf("%d on %s", got.status, engineOf(got))
		}
	}
	b.CloseClientConnections()
	b.Close()
	eventually(t, "the other engine to be down", func() bool { return p.fleet.ByName("b").State().String() == "down" })
	if got := p.post("/v1/chat/completions", of("B", "and now?")); got.status != 503 {
		t.Errorf("%d on %s: the story's model is thrown out", got.status, engineOf(got))
	}
	if n := len(a.got()); n != 1 {
		t.Errorf("%d requests for another model reached the engine that is busy", n-1)
	}
	close(next)
	if got := <-stream; got.status != 200 || got.err != nil || got.body != helloEvent+stopEvent+doneEvent {
		t.Errorf("the story: %d %v %q", got.status, got.err, got.body)
	}
}
