package ring

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/warmring/warmring/ring/prompt"
)

func TestSessionsExpireAndAreBounded(t *testing.T) {
	w := newWorld(t, Options{MaxSessions: 100, SessionIdle: time.Hour}, fleet(4, 0))
	for i := range 300 {
		w.turn(uint64(i+1), begin(1, 3000, uint64(i), 300))
	}
	if g := w.Gauges(); g.Sessions != 100 || g.Totals.SessionsShed != 200 {
		t.Errorf("%d sessions, %d shed", g.Sessions, g.Totals.SessionsShed)
	}
	if _, ok := w.Session(1); ok {
		t.Error("the oldest session is still known")
	}
	if v, ok := w.Session(300); !ok || v.Turns != 1 || v.Engine == "" {
		t.Errorf("the youngest session: %+v, %v", v, ok)
	}
	if views := w.Sessions(7); len(views) != 7 || views[0].Key != 300 || views[6].Key != 294 {
		t.Errorf("page of sessions: %+v", views)
	}
	w.sleep(2 * time.Hour)
	for range 20 { // a little at a time
		w.Forget(w.now, "")
	}
	if g := w.Gauges(); g.Sessions != 0 || g.Context != 0 || g.Totals.Expired != 100 {
		t.Errorf("after two hours: %+v", g)
	}
	w.settled()
}

// C108: far more distinct prompts than fit; memory stays within the bound, the most recent survive, what is shed is counted.
func TestIndexIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("places half a million turns")
	}
	const bound = 20_000_000 // 2 MB at 100 bytes per 1,000 tokens
	p := New(Options{MaxIndexTokens: bound, MaxSessions: 1000})
	p.SetEngines(0, fleet(4, 1<<40))
	before := heapInUse()
	c := begin(0, 0, 1, 4096)
	pr := c.prompt()
	var d Decision
	for i := range uint64(500_000) {
		for n := range pr.Chain {
			pr.Chain[n].Fingerprint = join(i, uint64(n))
		}
		ch, err := p.Place(&Turn{Now: int64(i) * 1e6, Prompt: pr}, &d)
		if err != nil {
			t.Fatal(err)
		}
		ch.Release(int64(i)*1e6, Outcome{})
	}
	g := p.Gauges()
	used := heapInUse() - before
	t.Logf("%d points, index %d bytes, sessions %d bytes, heap %d bytes, %d shed", g.IndexPoints, g.IndexBytes, g.SessionBytes, used, g.Totals.IndexShed)
	if g.IndexTokens > bound || g.IndexBytes > bound/10*12/10 || used > g.IndexBytes*12/10+g.SessionBytes*12/10+1<<20 {
		t.Errorf("over the bound: %+v, heap %d", g, used)
	}
	if g.Totals.IndexShed == 0 {
		t.Error("nothing was counted as shed")
	}
	if ch, err := p.Place(&Turn{Now: 3e15, Prompt: pr}, &d); err != nil || d.Available == 0 {
		t.Errorf("the last prompt is not warm any more: %+v", d)
	} else {
		ch.Release(3e15, Outcome{})
	}
	runtime.KeepAlive(p)
}

// C110: an engine that comes, fills and goes a hundred times leaves nothing behind, and the gauge tells the same as the heap.
func TestEnginesComeAndGo(t *testing.T) {
	p := New(Options{})
	turns := func() {
		for i := range uint64(200) {
			c := begin(0, 0, i, 40_000)
			var d Decision
			ch, err := p.Place(&Turn{Now: 1, Session: i + 1, Prompt: c.prompt()}, &d)
			if err != nil {
				t.Fatal(err)
			}
			ch.Release(1, Outcome{})
		}
	}
	round := func() {
		p.SetEngines(1, fleet(2, 0))
		turns()
		p.SetEngines(1, fleet(1, 0))
		p.SetEngines(1, nil)
	}
	round()
	before, gauge := heapInUse(), p.Gauges()
	for range 100 {
		round()
	}
	after := p.Gauges()
	if grown := heapInUse() - before; grown > before/10 {
		t.Errorf("heap grew by %d bytes of %d", grown, before)
	}
	if after.IndexPoints != 0 || after.IndexBytes > gauge.IndexBytes*11/10 {
		t.Errorf("index left behind: %+v", after)
	}
}

func TestModelNamesAreBounded(t *testing.T) {
	w := newWorld(t, Options{MaxModels: 10}, append(fleet(1, 0), Engine{Name: "named", Models: []string{"a"}}))
	for i := range 100 {
		ch, _ := w.place(&Turn{Model: []byte{byte('b' + i/26), byte('a' + i%26)}})
		ch.Release(w.now, Outcome{})
	}
	if n := w.Gauges().Models; n > 11 {
		t.Errorf("%d model names remembered", n)
	}
}

// The sizes that the memory figures are computed from.
func TestSizes(t *testing.T) {
	for _, s := range []struct {
		v    any
		want uintptr
	}{{entry{}, entrySize}, {run{}, runSize}, {session{}, sessionSize}, {head{}, headSize}, {prompt.Point{}, 16}} {
		if got := reflect.TypeOf(s.v).Size(); got != s.want {
			t.Errorf("%T takes %d bytes, documented %d", s.v, got, s.want)
		}
	}
}
