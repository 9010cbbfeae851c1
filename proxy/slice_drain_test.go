package proxy

import (
	"net/http"
	"testing"
)

// An operator drains an engine while a prompt is between two slices there: another one serves it, and that was no attempt.
func TestAnEngineIsDrainedBetweenTwoSlices(t *testing.T) {
	body := chatStream(words("long", 20_000))
	p, st := sliceAt(t, "retry.attempts = 1", body)
	drained, other, long := st.at, st.other, st.long
	shorts := st.hold(t, p)
	resp, err := http.Post(p.adminURL+"/api/engines/"+drained.name+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	close(other.short)
	got := wait(t, "the long answer", long)
	expectWhole(t, "the client", got)
	if x, ok := p.recent.explain(got.header.Get("X-Request-Id")); got.header.Get("X-Warmring-Engine") != other.name || !ok || x.Attempts != 1 {
		t.Errorf("answered by %s after %d attempts", got.header.Get("X-Warmring-Engine"), x.Attempts)
	}
	other.expectOnce(t, body, 0)
	close(drained.short)
	for _, short := range shorts {
		expectWhole(t, "a short turn", wait(t, "a short turn", short))
	}
	p.settled()
}
