package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSameEventsSameDecisions(t *testing.T) {
	run := func() (out []string) {
		w := newWorld(t, Options{MaxSessions: 50, MaxIndexTokens: 400_000}, fleet(6, 200_000))
		random := rand.New(rand.NewPCG(3, 4))
		talks := make([]*talk, 40)
		var flight []*Charge
		for i := range 3000 {
			at := random.IntN(len(talks))
			if talks[at] == nil || random.IntN(20) == 0 {
				talks[at] = begin(uint64(at%3), 30_000, uint64(i), 2000)
			}
			talks[at].say(uint64(i), random.IntN(9000)+1)
			ch, d := w.start(uint64(at%4)*uint64(at), talks[at])
			out = append(out, fmt.Sprintf("%s %s %d %d %x %v", d.Engine, d.Reason, d.Warm, d.Turn, d.Session, d.Runners))
			flight = append(flight, ch)
			w.sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			if len(flight) > 10 {
				flight[0].FirstToken(w.now)
				flight[0].Release(w.now, Outcome{PromptTokens: 9000, CachedTokens: random.IntN(9000), Prefilled: true})
				flight = flight[1:]
			}
			if i%500 == 0 {
				w.Forget(w.now, "e3")
				w.check()
			}
		}
		return out
	}
	a, b := run(), run()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("decision %d: %s and %s", i, a[i], b[i])
		}
	}
}

func TestProxiesAgreeWithoutTalk(t *testing.T) {
	engines := fleet(8, 0)
	reversed := fleet(8, 0)
	for i, e := range engines {
		reversed[len(reversed)-1-i] = e
	}
	a, b, c := newWorld(t, Options{}, engines), newWorld(t, Options{}, fleet(3, 0)), newWorld(t, Options{}, reversed)
	b.SetEngines(b.now, reversed)
	proxies := []*world{a, b, c}
	for session := range uint64(50) {
		talk := begin(1, 3000, session, 400)
		id := session % 2 * (session + 1)
		home := ""
		for n := range 9 {
			d := proxies[n%3].turn(id, talk.say(uint64(n), 300))
			if home == "" {
				home = d.Home
			}
			if d.Home != home {
				t.Fatalf("session %d, turn %d: home is %s, was %s", session, n, d.Home, home)
			}
		}
	}
}

func TestOneSessionThroughThreeProxies(t *testing.T) {
	for _, id := range []uint64{77, 0} {
		proxies := []*world{newWorld(t, Options{}, fleet(4, 0)), newWorld(t, Options{}, fleet(4, 0)), newWorld(t, Options{}, fleet(4, 0))}
		c := begin(1, 3000, 5, 400)
		engine := ""
		for n := range 9 {
			d := proxies[n%3].turn(id, c.say(uint64(n), 300))
			if engine != "" && d.Engine != engine {
				t.Errorf("id %d, turn %d: %+v, was at %s", id, n, d, engine)
			}
			engine = d.Engine
		}
	}
}
