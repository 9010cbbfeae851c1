package proxy

import (
	"bufio"
	"io"
	"sync"
	"time"
)

// LineWriter gathers log lines and writes them out a few times a second: one
// system call for many requests. Lines are whole on both sides of a flush.
type LineWriter struct {
	mu   sync.Mutex
	w    *bufio.Writer
	stop chan struct{}
	done chan struct{}
}

const lineFlush = 100 * time.Millisecond

// NewLineWriter writes to w until Close.
func NewLineWriter(w io.Writer) *LineWriter {
	l := &LineWriter{w: bufio.NewWriterSize(w, 32<<10), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(lineFlush)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
				l.mu.Lock()
				_ = l.w.Flush()
				l.mu.Unlock()
			}
		}
	}()
	return l
}

// Write takes one line.
func (l *LineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w.Available() < len(p) {
		_ = l.w.Flush()
	}
	return l.w.Write(p)
}

// Close writes out what is left and ends the flusher.
func (l *LineWriter) Close() {
	close(l.stop)
	<-l.done
	l.mu.Lock()
	_ = l.w.Flush()
	l.mu.Unlock()
}
