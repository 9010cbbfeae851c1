package gossip

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/e2e/ports"
)

func TestMembersMeetOverIPv6(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		_ = l.Close()
	}
	names := engineNames(4)
	a := startMember(t, names, nil, func(o *Options) { o.Bind = "[::1]:0" })
	b := startMember(t, names, []string{a.Address()}, func(o *Options) { o.Bind = "[::1]:0" })
	awaitMembers(t, []*proxy{a, b})
	d := a.place(t, 5)
	eventually(t, "news over IPv6", func() bool { return b.knows(5) == d.Engine })
}

// Bound to all addresses, a member tells the one it is reached at, and finds itself among the addresses to join.
func TestAllAddressesAreBoundAndOneIsTold(t *testing.T) {
	t.Parallel()
	names := engineNames(4)
	a := startMember(t, names, nil, func(o *Options) { o.Bind, o.Advertise = ":0", "127.0.0.1" })
	if !strings.HasPrefix(a.Address(), "127.0.0.1:") {
		t.Errorf("told %s", a.Address())
	}
	_, port, _ := net.SplitHostPort(a.Address())
	b := startMember(t, names, []string{"localhost:" + port}, func(o *Options) { o.Bind, o.Interface = "0.0.0.0:0", "lo" })
	awaitMembers(t, []*proxy{a, b})
	if !strings.HasPrefix(b.Address(), "127.0.0.1:") {
		t.Errorf("told %s", b.Address())
	}
}

func TestAMemberThatFindsOnlyItselfIsAlone(t *testing.T) {
	t.Parallel()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for what, change := range map[string]func(*Options){
		"by its own address":     func(o *Options) { o.Join = []string{address} },
		"by another of its own":  func(o *Options) { o.Advertise, o.Join = "127.0.0.2", []string{address} },
		"by the name of its own": func(o *Options) { o.Join = []string{strings.Replace(address, "127.0.0.1", "localhost", 1)} },
	} {
		start := time.Now()
		p := startMember(t, engineNames(2), nil, func(o *Options) { o.Bind, o.ReadyLimit = address, time.Hour; change(o) })
		eventually(t, what, p.IsReady)
		if took := time.Since(start); took > 3*time.Second {
			tooSlow(t, "%s: ready after %v", what, took)
		}
		if !p.View().Alone {
			t.Errorf("%s: not alone", what)
		}
		_ = p.Close()
	}
}

// One address is open, and an interface is named: that is told which is both, and not another one at which nobody listens.
func TestWhatIsToldIsWhatIsOpen(t *testing.T) {
	t.Parallel()
	a := startMember(t, engineNames(1), nil, func(o *Options) { o.Interface = "lo" })
	if !strings.HasPrefix(a.Address(), "127.0.0.1:") {
		t.Errorf("told %s", a.Address())
	}
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if addresses, _ := i.Addrs(); i.Flags&net.FlagLoopback != 0 || len(addresses) == 0 {
			continue
		}
		c, err := Start(Options{Bind: "127.0.0.1:0", Interface: i.Name, Placer: newPlacer(engineNames(1)), Now: clock})
		if err == nil {
			_ = c.Close()
			t.Errorf("bound to the loopback, %s is told", i.Name)
		} else if at := new(OptionError); !errors.As(err, &at) || at.Option != "interface" || !strings.Contains(err.Error(), "opens 127.0.0.1 alone") {
			t.Error(err)
		}
	}
}

func TestFaultsOfAddressesSayWhatToDo(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Options){
		"is not a port":   func(o *Options) { o.Bind = "127.0.0.1:x" },
		"missing port":    func(o *Options) { o.Bind = "127.0.0.1" },
		"there are":       func(o *Options) { o.Bind, o.Interface = "0.0.0.0:0", "none9" },
		"cluster keys":    func(o *Options) { o.Keys = [][]byte{[]byte("short")} },
		"open cluster po": func(o *Options) { o.Bind = "203.0.113.1:7946" },
	} {
		opt := Options{Bind: "127.0.0.1:0", Placer: newPlacer(engineNames(1)), Now: clock}
		change(&opt)
		c, err := Start(opt)
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: accepted", what)
		} else if !strings.Contains(err.Error(), what) {
			t.Errorf("want %q in %q", what, err)
		}
		option := "bind"
		if opt.Interface != "" {
			option = "interface"
		} else if opt.Keys != nil {
			option = "keys"
		}
		if at := new(OptionError); err != nil && (!errors.As(err, &at) || at.Option != option) {
			t.Errorf("%s: blamed is %q, not %s", what, at.Option, option)
		}
	}
}

func TestMembersWithOtherEnginesOrSettingsAreShown(t *testing.T) {
	t.Parallel()
	a := startMember(t, engineNames(4), nil, func(o *Options) { o.Settings = 7; o.Version = "9.9" })
	b := startMember(t, append(engineNames(3), "other"), []string{a.Address()}, func(o *Options) {
		o.Settings = 8
		o.EngineStates = func() []EngineState { return []EngineState{{"e0", 4}, {"e1", 1}, {"e2", 1}, {"other", 1}} }
	})
	awaitMembers(t, []*proxy{a, b})
	var v View
	eventually(t, "the states", func() bool { v = a.View(); return len(v.Members) == 1 && len(v.Members[0].NotReady) == 1 })
	text := strings.Join(v.Members[0].Differs, "; ")
	for _, want := range []string{"another list of engines", "it lacks e3", "1 of its engines are not known here", "settings"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if m := v.Members[0]; m.NotReady[0].Engine != "e0" || m.Heard == nil || m.Program != "test" {
		t.Errorf("%+v", m)
	}
	if back := b.View().Members[0]; back.Program != "9.9" {
		t.Errorf("%+v", back)
	}
	a.place(t, 1)
	b.place(t, 2) // whatever they are bound to, nothing breaks
}
