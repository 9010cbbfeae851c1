package ring

import (
	"encoding/json"
	"strings"
	"testing"
)

// What operators read: keys as in the response header, reasons and states by name, only the runners that are set.
func TestViewsAreReadable(t *testing.T) {
	w := newWorld(t, Options{}, fleet(2, 1_000_000))
	d := w.turn(0xfedcba9876543210, begin(1, 30_000, 1, 500))
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ got, want string }{
		{text(d), `"session":"fedcba9876543210"`},
		{text(d), `"reason":"home"`},
		{text(d), `"runners":[{"engine":"` + d.Engine},
		{text(w.Gauges()), `"placed":{"bound":0,"failover":0,"home":1,`},
		{text(w.Snapshot()), `"state":"ready"`},
		{text(w.Sessions(10)), `"key":"fedcba9876543210","engine":"` + d.Engine + `"`},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s not in %s", c.want, c.got)
		}
	}
	var k Key
	if err := k.UnmarshalText([]byte("fedcba9876543210")); err != nil || k != 0xfedcba9876543210 {
		t.Errorf("read %s, %v", k, err)
	}
	if err := k.UnmarshalText([]byte("s-77")); err == nil {
		t.Error("read a key from s-77")
	}
	if views := w.Sessions(-1); len(views) != 0 {
		t.Errorf("a page of -1 sessions: %v", views)
	}
}
