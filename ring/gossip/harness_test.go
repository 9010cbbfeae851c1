package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmring/warmring/ring"
)

func TestMain(m *testing.M) {
	// A probe under way when its member ends waits for the answer that does not come, for up to some seconds.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

var began = time.Now()

func clock() int64 { return int64(time.Since(began)) }

// proxy is a member with its placer.
type proxy struct {
	*Cluster
	placer *ring.Placer
	log    *syncBuffer

	mu      sync.Mutex
	drained map[string]bool
	hints   map[string]ring.State
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func engineNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, "e"+strconv.Itoa(i))
	}
	return names
}

func newPlacer(names []string) *ring.Placer {
	p := ring.New(ring.Options{})
	var list []ring.Engine
	for _, name := range names {
		list = append(list, ring.Engine{Name: name, KVTokens: 2_000_000, State: ring.Ready})
	}
	p.SetEngines(0, list)
	return p
}

// startMember starts a member on loopback; change may alter its options.
func startMember(t testing.TB, names []string, join []string, change func(*Options)) *proxy {
	t.Helper()
	p := &proxy{placer: newPlacer(names), log: &syncBuffer{}, drained: map[string]bool{}, hints: map[string]ring.State{}}
	opt := Options{
		Node: "p", Bind: "127.0.0.1:0", Join: join, Engines: names, Placer: p.placer, Now: clock, Version: "test",
		Log: slog.New(slog.NewTextHandler(p.log, nil)),
		OnDrain: func(engine string, drained bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.drained[engine] = drained
		},
		OnHint: func(engine string, state ring.State) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.hints[engine] = state
		},
	}
	if change != nil {
		change(&opt)
	}
	var err error
	if p.Cluster, err = Start(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Logf("closing %s: %v", p.name, err)
		}
		if t.Failed() && testing.Verbose() {
			fmt.Printf("--- log of %s\n%s", p.name, p.log)
		}
	})
	return p
}

// startCluster starts n members that know each other.
func startCluster(t testing.TB, n int, names []string, change func(int, *Options)) []*proxy {
	t.Helper()
	var all []*proxy
	for i := range n {
		var join []string
		if i > 0 {
			join = []string{all[0].Address()}
		}
		all = append(all, startMember(t, names, join, func(o *Options) {
			if change != nil {
				change(i, o)
			}
		}))
	}
	awaitMembers(t, all)
	return all
}

func awaitMembers(t testing.TB, all []*proxy) {
	t.Helper()
	for _, p := range all {
		eventually(t, fmt.Sprintf("%s to see %d others", p.name, len(all)-1), func() bool {
			return p.members.count() == len(all)-1 && p.IsReady()
		})
	}
}

// patience is for what happens in a moment, however slow and loaded the machine: what is asserted is that it happens, how soon is
// printed.
const patience = 60 * time.Second

// figures tells that the machine is quiet enough for its speed to be asserted, too.
var figures = os.Getenv("WARMRING_FIGURES") != ""

// tooSlow reports a figure that is not as good as it should be: a failure where figures are asserted, else a line to read.
func tooSlow(t testing.TB, format string, args ...any) {
	t.Helper()
	if figures {
		t.Errorf(format, args...)
	} else {
		t.Logf("slower than it should be: "+format, args...)
	}
}

func eventually(t testing.TB, what string, condition func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !condition() {
		if time.Since(start) > patience {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}

// place gives a proxy a turn of a session and answers it.
func (p *proxy) place(t testing.TB, session uint64) ring.Decision {
	t.Helper()
	var d ring.Decision
	ch, err := p.placer.Place(&ring.Turn{Now: clock(), Session: session}, &d)
	if err != nil {
		t.Fatal(err)
	}
	ch.Release(clock(), ring.Outcome{PromptTokens: -1, CachedTokens: -1, OutputTokens: -1})
	return d
}

// knows is where a proxy believes a session to live.
func (p *proxy) knows(session uint64) string {
	e, ok := p.book.Get(clock(), session, Session)
	if !ok {
		return ""
	}
	name, _ := p.engineName(e.Value)
	return name
}
