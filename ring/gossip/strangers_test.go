package gossip

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a stranger can send as a stream, in the words of the library: a label, a message type, and msgpack.
func labelled(name string, rest ...[]byte) []byte {
	return append(append([]byte{244, byte(len(name))}, name...), bytes.Join(rest, nil)...)
}

// stateHeader announces a full state of so many members and bytes.
func stateHeader(nodes, bytes uint32) []byte {
	b := []byte{6, 0x83, 0xa5}
	b = append(b, "Nodes"...)
	b = binary.BigEndian.AppendUint32(append(b, 0xce), nodes)
	b = append(append(b, 0xac), "UserStateLen"...)
	b = binary.BigEndian.AppendUint32(append(b, 0xce), bytes)
	b = append(append(b, 0xa4), "Join"...)
	return append(b, 0xc3)
}

func messageHeader(bytes uint32) []byte {
	b := append([]byte{8, 0x81, 0xaa}, "UserMsgLen"...)
	return binary.BigEndian.AppendUint32(append(b, 0xce), bytes)
}

// bomb is a small message that is a large one when decompressed.
func bomb(size int) []byte {
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, size))
	_ = w.Close()
	b := append([]byte{9, 0x82, 0xa4}, "Algo"...)
	b = append(append(b, 0), 0xa3)
	b = append(b, "Buf"...)
	b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(packed.Len()))
	return append(b, packed.Bytes()...)
}

// hugeName begins a list of members with one whose name is said to have two gigabytes.
func hugeName() []byte {
	b := stateHeader(1, 0)
	b = append(append(b, 0x81, 0xa4), "Name"...)
	return append(b, 0xdb, 0x7f, 0xff, 0xff, 0xff, 'x')
}

// Whoever reaches the port of a cluster without keys can open streams that announce much and bring little. They cost next to nothing, are
// counted, and do not keep members from talking.
func TestStreamsOfStrangersCostLittleAndAreCounted(t *testing.T) { // not parallel: it measures memory
	compressedState := func() []byte { return bomb(30 << 20) }
	for _, c := range []struct {
		what string
		keys [][]byte
		send []byte
	}{
		{"a million members", nil, labelled("warmring", stateHeader(1<<20, 0))},
		{"twenty megabytes of state", nil, labelled("warmring", stateHeader(0, 20<<20))},
		{"negative numbers", nil, labelled("warmring", []byte{6, 0x82, 0xa5}, []byte("Nodes"), []byte{0xff}, []byte{0xac}, []byte("UserStateLen"), []byte{0xe0})},
		{"twenty megabytes of message", nil, labelled("warmring", messageHeader(20<<20))},
		{"a name of two gigabytes", nil, labelled("warmring", hugeName())},
		{"a bomb", nil, labelled("warmring", compressedState())},
		{"garbage", nil, labelled("warmring", []byte{200, 1, 2, 3, 4, 5, 6, 7, 8, 9})},
		{"a state that is an array", nil, labelled("warmring", []byte{6, 0x93, 0xce, 0, 0xf, 0xff, 0xff, 0, 0xc3})},
		{"another cluster", nil, labelled("theirs", stateHeader(1, 1))},
		{"no cluster", nil, stateHeader(1, 1)},
		{"a cut label", nil, []byte{244, 40, 'x'}},
		{"much that is encrypted, here without keys", nil, labelled("warmring", []byte{10, 1, 0x40, 0, 0}, make([]byte, 1000))},
		{"much that is encrypted", [][]byte{[]byte("0123456789abcdef")}, labelled("warmring", []byte{10, 1, 0x40, 0, 0}, make([]byte, 1000))},
		{"something in clear", [][]byte{[]byte("0123456789abcdef")}, labelled("warmring", stateHeader(1, 1))},
	} {
		p := startMember(t, engineNames(2), nil, func(o *Options) { o.Keys = c.keys })
		const streams = 40
		before := p.View().Strangers
		var at, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&at)
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				conn, err := net.Dial("tcp", p.Address())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				_, _ = conn.Write(c.send)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = conn.Read(make([]byte, 1)) // until it hangs up or answers
			})
		}
		all.Wait()
		eventually(t, c.what+" to be counted", func() bool { return p.View().Strangers >= before+streams })
		runtime.ReadMemStats(&after)
		each := float64(after.TotalAlloc-at.TotalAlloc) / streams / 1024
		t.Logf("%s: %.0f KB each", c.what, each)
		if each > 512 { // what is sent, and room for buffers
			t.Errorf("%s costs %.0f KB of memory a stream", c.what, each)
		}
		if v := p.View(); v.Strangers > before+2*streams {
			t.Errorf("%s: %d streams count as %d strangers", c.what, streams, v.Strangers-before)
		}
		_ = p.Close()
	}
}

// The same by packet.
func TestABombInAPacketIsNotOpened(t *testing.T) { // not parallel: it measures memory
	p := startMember(t, engineNames(2), nil, nil)
	udp, err := net.Dial("udp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	packed := bomb(30 << 20)
	compound := func(parts ...[]byte) []byte {
		b := []byte{7, byte(len(parts))}
		for _, part := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	packets := map[string][]byte{"a bomb": packed, "a bomb among others": compound([]byte{8, 1, 2}, packed), "a bomb in a box in a box": compound(compound(packed))}
	if len(packed) > 60_000 {
		t.Fatalf("the bomb has %d bytes", len(packed))
	}
	for what, packet := range packets {
		var at, after runtime.MemStats
		before := p.View().Strangers
		runtime.ReadMemStats(&at)
		const times = 10
		for range times {
			if _, err := udp.Write(labelled("warmring", packet)); err != nil {
				t.Fatal(what, err)
			}
		}
		eventually(t, fmt.Sprint(what, " to be counted"), func() bool { return p.View().Strangers > before })
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - at.TotalAlloc) / times; each > 1<<20 {
			t.Errorf("%s costs %d KB", what, each>>10)
		}
	}
}

// A full state of a real member still passes, in clear and encrypted.
func TestMembersPassTheGuard(t *testing.T) {
	t.Parallel()
	for _, keys := range [][][]byte{nil, {[]byte("0123456789abcdef")}} {
		all := startCluster(t, 2, engineNames(4), func(_ int, o *Options) { o.Keys = keys })
		for s := range uint64(300) {
			all[0].place(t, s+1)
		}
		eventually(t, "the state", func() bool { return all[1].book.Len() >= 300 })
		late := startMember(t, engineNames(4), []string{all[1].Address()}, func(o *Options) { o.Keys = keys })
		<-late.Ready()
		eventually(t, "all to know all", func() bool { return late.book.Len() >= 300 && late.members.count() == 2 })
		for _, p := range append(all, late) {
			if n := p.View().Strangers; n != 0 {
				t.Errorf("%d members count as strangers", n)
			}
		}
	}
}

func TestStrangersAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	names := engineNames(2)
	ours := startMember(t, names, nil, func(o *Options) { o.Keys = [][]byte{key} })
	quick := func(o *Options) { o.ReadyLimit = 300 * time.Millisecond }
	for what, change := range map[string]func(*Options){
		"another key":     func(o *Options) { quick(o); o.Keys = [][]byte{other} },
		"no key":          func(o *Options) { quick(o) },
		"another cluster": func(o *Options) { quick(o); o.Keys = [][]byte{key}; o.Cluster = "theirs" },
	} {
		before := ours.View().Strangers
		p := startMember(t, names, []string{ours.Address()}, change)
		<-p.Ready()
		if p.members.count() != 0 || ours.members.count() != 0 {
			t.Errorf("%s: it was let in", what)
		}
		eventually(t, what+" to be counted", func() bool { return ours.View().Strangers > before })
	}
	if !strings.Contains(ours.log.String(), "gossip") {
		t.Error("nothing in the log")
	}
}
