package gossip

import (
	"strings"
	"testing"
	"time"
)

// A proxy that works alone although it was told of others is a fault that nobody sees from outside: sessions scatter.
func TestAProxyThatFindsNobodySaysSo(t *testing.T) {
	t.Parallel()
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	names := engineNames(2)
	there := startMember(t, names, nil, func(o *Options) { o.Keys = [][]byte{key} })
	bare := startMember(t, names, nil, nil)
	for what, c := range map[string]struct {
		join   string
		change func(*Options)
		says   string
	}{
		"another key":     {there.Address(), func(o *Options) { o.Keys = [][]byte{other} }, "cluster.keys"},
		"no key":          {there.Address(), func(o *Options) {}, "cluster.keys"},
		"a key too many":  {bare.Address(), func(o *Options) { o.Keys = [][]byte{key} }, "cluster.keys"},
		"another cluster": {there.Address(), func(o *Options) { o.Keys = [][]byte{key}; o.Cluster = "theirs" }, "cluster.name"},
		"a wrong name":    {"no-such-host.invalid:7946", func(o *Options) {}, "no-such-host.invalid"},
		"nobody there":    {"127.0.0.1:1", func(o *Options) {}, "127.0.0.1:1"},
	} {
		p := startMember(t, names, []string{c.join}, func(o *Options) {
			o.ReadyLimit, o.Rejoin = 300*time.Millisecond, time.Second
			c.change(o)
		})
		<-p.Ready()
		v := p.View()
		if !v.Lonely || !strings.Contains(v.LastJoinError, c.says) || v.Totals.JoinFails+v.Totals.LookupFails == 0 {
			t.Errorf("%s: lonely %v, last error %q, %+v", what, v.Lonely, v.LastJoinError, v.Totals)
		}
		eventually(t, what+" to be warned of", func() bool { return strings.Contains(p.log.String(), "level=WARN msg=\"cluster: this proxy is alone") })
		joins := func() uint64 { v := p.View(); return v.Totals.JoinFails + v.Totals.LookupFails }
		before := joins()
		eventually(t, "two more attempts", func() bool { return joins() > before+1 })
		if n := strings.Count(p.log.String(), "this proxy is alone"); n != 1 {
			t.Errorf("%s is warned of %d times at once", what, n)
		}
	}
}

func TestAProxyThatIsMeantToBeAloneDoesNotComplain(t *testing.T) {
	t.Parallel()
	first := startMember(t, engineNames(2), nil, nil)
	if v := first.View(); v.Lonely {
		t.Error("nothing to join, and lonely")
	}
	address := first.Address()
	_ = first.Close()
	own := startMember(t, engineNames(2), []string{address}, func(o *Options) { o.Bind = address })
	<-own.Ready()
	if v := own.View(); v.Lonely || v.LastJoinError != "" || strings.Contains(own.log.String(), "level=WARN") {
		t.Errorf("the only one of a list complains: %+v\n%s", v.LastJoinError, own.log)
	}
}

// The last error is gone with its reason.
func TestOneThatIsFoundEndsTheLoneliness(t *testing.T) {
	t.Parallel()
	first := startMember(t, engineNames(2), nil, nil)
	address := first.Address()
	_ = first.Close()
	p := startMember(t, engineNames(2), []string{address}, func(o *Options) { o.ReadyLimit, o.Rejoin = 300*time.Millisecond, time.Second })
	<-p.Ready()
	if !p.View().Lonely {
		t.Error("not lonely without anybody")
	}
	startMember(t, engineNames(2), nil, func(o *Options) { o.Bind = address })
	eventually(t, "the end of it", func() bool { v := p.View(); return !v.Lonely && v.LastJoinError == "" && len(v.Members) == 1 })
}

// It is gone at once: the next regular look at the names may be half a minute away.
func TestAMemberThatComesEndsTheLastErrorAtOnce(t *testing.T) {
	t.Parallel()
	p := startMember(t, engineNames(2), []string{"127.0.0.1:1"}, func(o *Options) { o.ReadyLimit, o.Rejoin = 300*time.Millisecond, time.Hour })
	<-p.Ready()
	if p.View().LastJoinError == "" {
		t.Fatal("no error without anybody")
	}
	startMember(t, engineNames(2), []string{p.Address()}, nil)
	eventually(t, "the member", func() bool { return p.members.count() == 1 })
	eventually(t, "the end of the error", func() bool { return p.View().LastJoinError == "" })
}
