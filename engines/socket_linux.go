package engines

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// socket is a TCP connection whose reads and writes stay inside the scheduler.
// A system call on a socket in non-blocking mode never waits, but the runtime
// cannot know that: around each it gets ready to lose the processor, and wakes
// its monitor thread, which then polls every 20 µs for as long as calls go on.
// For a proxy, which does little else, that is a sixth of the CPU it spends on a
// paced stream (measured). Waiting for readiness, deadlines and closing are
// the runtime's own as ever.
//
// One goroutine reads and one writes at a time. A call holds its processor while
// the kernel copies: 20 µs for 200 KB.
type socket struct {
	*net.TCPConn
	raw syscall.RawConn
	in  socketRead
	out socketWrite
}

// Direct makes the reads and writes of a TCP connection cheaper. At most one
// goroutine may read it and one write it at a time from then on. Other connections are
// returned as they are.
func Direct(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{TCPConn: tcp, raw: raw}
	// Made once: a method value made for each call would be an allocation.
	s.in.step, s.out.step = s.in.try, s.out.try
	return s
}

// socketRead is a read under way.
type socketRead struct {
	p     []byte
	pool  *sync.Pool // of *[]byte: where p comes from once there is something to read
	from  *[]byte
	n     int
	errno syscall.Errno
	step  func(fd uintptr) bool
}

// try reads once. It returns false when nothing has come yet.
func (r *socketRead) try(fd uintptr) bool {
	if r.pool != nil {
		r.from = r.pool.Get().(*[]byte)
		r.p = *r.from
	}
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&r.p[0])), uintptr(len(r.p)))
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if r.pool != nil {
				r.pool.Put(r.from)
				r.p, r.from = nil, nil
			}
			return false
		}
		r.n, r.errno = int(n), errno
		return true
	}
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.p = p
	return s.read()
}

// ReadPooled waits for bytes and reads them into a buffer of the pool's (of *[]byte), which the
// caller puts back. A connection that waits holds none.
func (s *socket) ReadPooled(pool *sync.Pool) (*[]byte, int, error) {
	s.in.pool = pool
	n, err := s.read()
	buf := s.in.from
	s.in.pool, s.in.from = nil, nil
	if err != nil && buf != nil {
		pool.Put(buf)
		buf = nil
	}
	return buf, n, err
}

func (s *socket) read() (int, error) {
	err := s.raw.Read(s.in.step)
	n, errno := s.in.n, s.in.errno
	s.in.p = nil
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, s.failed("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// socketWrite is a write under way.
type socketWrite struct {
	bufs  [][]byte // what is left
	sent  int
	errno syscall.Errno
	step  func(fd uintptr) bool
	list  [8][]byte
	iovs  [8]syscall.Iovec
}

// try writes until all is written or the connection takes no more for now; then
// it returns false.
func (w *socketWrite) try(fd uintptr) bool {
	for {
		k := 0
		for _, b := range w.bufs {
			if len(b) == 0 {
				continue
			}
			if k == len(w.iovs) {
				break
			}
			w.iovs[k].Base = &b[0]
			w.iovs[k].SetLen(len(b))
			k++
		}
		var n uintptr
		var errno syscall.Errno
		switch k {
		case 0:
			return true
		case 1:
			n, _, errno = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(w.iovs[0].Base)), uintptr(w.iovs[0].Len))
		default:
			n, _, errno = syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&w.iovs[0])), uintptr(k))
		}
		switch errno {
		case 0:
			w.took(int(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			w.errno = errno
			return true
		}
	}
}

// took moves on by n bytes.
func (w *socketWrite) took(n int) {
	w.sent += n
	for len(w.bufs) > 0 {
		if b := w.bufs[0]; n < len(b) {
			w.bufs[0] = b[n:]
			return
		}
		n -= len(w.bufs[0])
		w.bufs[0] = nil
		w.bufs = w.bufs[1:]
	}
}

func (s *socket) Write(p []byte) (int, error) {
	s.out.list[0] = p
	return s.flush(1)
}

// WriteAll writes head and pieces one after the other, in as few system calls as
// the connection allows.
func (s *socket) WriteAll(head []byte, pieces [][]byte) error {
	s.out.list[0] = head
	k := 1
	for _, p := range pieces {
		if k == len(s.out.list) {
			if _, err := s.flush(k); err != nil {
				return err
			}
			k = 0
		}
		s.out.list[k] = p
		k++
	}
	_, err := s.flush(k)
	return err
}

// WriteAll writes head and pieces one after the other, in as few system calls as
// the connection allows.
// flush writes the first k buffers of the list.
func (s *socket) flush(k int) (int, error) {
	w := &s.out
	w.bufs, w.sent, w.errno = w.list[:k], 0, 0
	err := s.raw.Write(w.step)
	// An idle connection must not hold what it sent.
	clear(w.list[:k])
	clear(w.iovs[:k])
	w.bufs = nil
	switch {
	case err != nil:
		return w.sent, err
	case w.errno != 0:
		return w.sent, s.failed("write", w.errno)
	}
	return w.sent, nil
}

func (s *socket) failed(call string, errno syscall.Errno) error {
	return &net.OpError{Op: call, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(call, errno)}
}

// NetConn is the connection as the runtime knows it.
func (s *socket) NetConn() net.Conn { return s.TCPConn }
