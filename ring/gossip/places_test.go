package gossip

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A stranger without the key that holds connections open, and says nothing on them, keeps nobody out: there is room for many of those, and
// the oldest goes for the next.
func TestSilentStreamsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	keys := [][]byte{[]byte("0123456789abcdef")}
	p := startMember(t, engineNames(2), nil, func(o *Options) { o.Keys = keys })
	p.place(t, 77)
	eventually(t, "an entry", func() bool { return p.book.Len() >= 1 })
	var held []net.Conn
	hold := func() {
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	defer func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	for range 10 * maxStreams {
		hold()
	}
	late := startMember(t, engineNames(2), []string{p.Address()}, func(o *Options) { o.Keys, o.ReadyLimit = keys, time.Hour })
	<-late.Ready()
	if v := late.View(); late.knows(77) == "" || v.Totals.JoinFails != 0 {
		t.Errorf("kept out: %d attempts failed, %s", v.Totals.JoinFails, v.LastJoinError)
	}
	if n := p.View().Crowded; n != 0 {
		t.Errorf("%d streams cut with room for more", n)
	}
	for range maxSilent {
		hold()
	}
	_ = held[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := held[0].Read(make([]byte, 1)); err == nil {
		t.Error("an answer to nothing")
	}
	eventually(t, "those that were cut to be counted", func() bool { return p.View().Crowded > 0 })
}

func arrivals(sources ...string) (list []*countedConn) {
	for _, source := range sources {
		near, far := net.Pipe()
		_ = far.Close()
		list = append(list, &countedConn{Conn: near, counts: &traffic{}, source: source})
	}
	return list
}

func times(n int, source string) (list []string) {
	for range n {
		list = append(list, source)
	}
	return list
}

// Of too many silent streams the oldest of the address with the most goes, so an address that floods pushes out its own.
func TestTheOldestSilentStreamOfTheBusiestAddressGoes(t *testing.T) {
	var p places
	list := arrivals(append([]string{"a", "b"}, times(maxSilent-2, "b")...)...)
	for _, c := range list {
		if p.enter(c) != nil {
			t.Fatal("cut with room for more")
		}
	}
	more := arrivals("a", "b", "c")
	for i, want := range []*countedConn{list[1], list[2], list[3]} {
		if got := p.enter(more[i]); got != want {
			t.Errorf("arrival %d pushes out one of %s", i, got.source)
		}
	}
	if ok, _ := p.speak(list[1]); ok {
		t.Error("one that was cut speaks")
	}
	if ok, out := p.speak(list[0]); !ok || out != nil {
		t.Error("the silent keep others from speaking")
	}
}

// Places for those that speak are few, as each may hold megabytes: an address that has several gives one to another.
func TestAnAddressThatSpeaksOnManyStreamsGivesWay(t *testing.T) {
	var p places
	speak := func(source string) (bool, *countedConn, *countedConn) {
		c := arrivals(source)[0]
		p.enter(c)
		ok, out := p.speak(c)
		return ok, out, c
	}
	var first *countedConn
	for i := range maxStreams {
		ok, out, c := speak("a")
		if !ok || out != nil {
			t.Fatal("refused with room for more")
		}
		if i == 0 {
			first = c
		}
	}
	if ok, out, _ := speak("a"); ok || out != nil {
		t.Error("one address pushes out its own, and what it has begun is lost")
	}
	if ok, out, _ := speak("b"); !ok || out != first {
		t.Error("another address is not let in")
	}
	for range maxStreams/2 - 1 {
		if ok, _, _ := speak("b"); !ok {
			t.Error("an address with fewer streams is not let in")
		}
	}
	if ok, _, _ := speak("b"); ok {
		t.Error("an address with as many streams pushes out another's")
	}
	p.leave(p.talking[0])
	if ok, _, _ := speak("b"); !ok || len(p.silent) != 0 || len(p.talking) != maxStreams {
		t.Errorf("a place that was left is not free: %d silent, %d talking", len(p.silent), len(p.talking))
	}
}

func TestSourcesAreHosts(t *testing.T) {
	for a, b := range map[string]string{
		"10.0.0.1:5":          "10.0.0.1:6",
		"[::ffff:10.0.0.1]:5": "10.0.0.1:6",
		"[2001:db8::1]:5":     "[2001:db8::2]:5", // one host has a network of them
	} {
		one, _ := net.ResolveTCPAddr("tcp", a)
		other, _ := net.ResolveTCPAddr("tcp", b)
		if sourceOf(one) != sourceOf(other) {
			t.Errorf("%s and %s are taken for two", a, b)
		}
	}
	one, _ := net.ResolveTCPAddr("tcp", "10.0.0.1:5")
	other, _ := net.ResolveTCPAddr("tcp", "10.0.0.2:5")
	if sourceOf(one) == sourceOf(other) {
		t.Error("two hosts are taken for one")
	}
}

// Who is hung up on is told of all that may be the reason.
func TestAHangUpMayHaveSeveralReasons(t *testing.T) {
	if text := joinError("x:1", io.EOF).Error(); !strings.Contains(text, "cluster.keys") || !strings.Contains(text, "crowded_streams") {
		t.Error(text)
	}
}
