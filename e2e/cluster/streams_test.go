package cluster

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (n *network) accept(g *gate) {
	for {
		in, err := g.tcp.Accept()
		if err != nil {
			return
		}
		n.work.Go(func() { n.stream(g, in) })
	}
}

// stream passes one to a proxy. One that meets a cut gets no answer until that is over, or its opener gives up.
func (n *network) stream(g *gate, in net.Conn) {
	defer in.Close()
	from, err := n.opener(in)
	if err != nil { // it has written what it had to say and is gone: nobody knows who it was
		from = anyone
	}
	n.mu.Lock()
	n.streams[in] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.streams, in)
		n.mu.Unlock()
	}()
	if !n.passable(from, g.to) {
		return
	}
	out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.f.ports[g.to]))
	if err != nil {
		return
	}
	defer out.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		n.pipe(in, out, from, g.to)
		_ = in.Close() // who answers last ends it
	}()
	n.pipe(out, in, from, g.to)
	_ = out.(*net.TCPConn).CloseWrite()
	<-back
}

const (
	anyone  = -1
	givesUp = 10 * time.Second // who opens a stream, when nobody answers
)

// passable waits for the end of a cut. A stream needs both directions.
func (n *network) passable(a, b int) bool {
	for began := time.Now(); time.Since(began) < givesUp; {
		n.mu.Lock()
		cut := n.faults.cut
		n.mu.Unlock()
		if cut == nil || a != anyone && !cut(a, b) && !cut(b, a) {
			return true
		}
		if !n.pause(20 * time.Millisecond) {
			return false
		}
	}
	return false
}

// pipe copies piece by piece, late where packets are late or lost.
func (n *network) pipe(to io.Writer, from io.Reader, a, b int) {
	buffer := make([]byte, 16<<10)
	for {
		size, err := from.Read(buffer)
		n.mu.Lock()
		f := n.faults
		n.mu.Unlock()
		wait := time.Duration(0)
		if f.delay > 0 {
			wait = rand.N(f.delay)
		}
		if rand.Float64() < f.loss {
			wait += 200 * time.Millisecond
		}
		if size == 0 || wait > 0 && !n.pause(wait) || !n.passable(a, b) {
			return
		}
		if _, bad := to.Write(buffer[:size]); bad != nil || err != nil {
			return
		}
	}
}

// opener is the proxy that opened a stream: the kernel knows whose socket has that port.
func (n *network) opener(c net.Conn) (int, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	local := fmt.Sprintf("0100007F:%04X", c.RemoteAddr().(*net.TCPAddr).Port)
	remote := fmt.Sprintf("0100007F:%04X", c.LocalAddr().(*net.TCPAddr).Port)
	for line := range strings.Lines(string(table)) {
		if field := strings.Fields(line); len(field) > 9 && field[1] == local && field[2] == remote {
			return n.owner("socket:[" + field[9] + "]")
		}
	}
	return 0, fmt.Errorf("no socket at %v", c.RemoteAddr())
}

// owner is the proxy that has a socket open; one is known by its configuration's file, so those that are just starting are found, too.
func (n *network) owner(socket string) (int, error) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range list {
		pid := entry.Name()
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		i, known := n.pids.Load(pid)
		if !known {
			i = n.index(pid)
			if i != -2 {
				n.pids.Store(pid, i)
			}
		}
		if i.(int) < 0 {
			continue
		}
		links, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			continue
		}
		for _, link := range links {
			if to, _ := os.Readlink("/proc/" + pid + "/fd/" + link.Name()); to == socket {
				return i.(int), nil
			}
		}
	}
	return 0, fmt.Errorf("nobody has %s", socket)
}

// index is which proxy a process is: -1 none, -2 not known yet, as it has not become its program.
func (n *network) index(pid string) int {
	command, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || bytes.HasPrefix(command, []byte(os.Args[0]+"\x00")) {
		return -2
	}
	_, own, _ := strings.Cut(string(command), "\x00"+filepath.Join(n.f.logs, "proxy-"))
	number, _, _ := strings.Cut(own, "-")
	if i, err := strconv.Atoi(number); err == nil {
		return i
	}
	return -1
}
