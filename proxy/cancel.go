package proxy

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/warmring/warmring/engines"
)

// clientGone is called by the hang-up watcher. It does not block.
func (r *request) clientGone() {
	select {
	case r.gone <- struct{}{}:
	default:
	}
	r.stop()
}

// stop ends the engine's work on the request in the way its kind needs. It may be
// called from any goroutine that keeps the request from being recycled meanwhile,
// and does not block.
func (r *request) stop() {
	in := r.current.Load()
	if in == nil || in.rid == "" {
		r.x.Cancel()
		return
	}
	// SGLang looks for closed connections every 2 to 4 s only, and forgets the
	// name of a request whose connection is gone: ask first, then close.
	r.aborts.begin()
	r.s.abortThen(in.up, in.rid, &r.lane.ordered, func() {
		r.x.Cancel()
		r.aborts.end()
	})
}

// takeBack is stop for a request that will be sent again: it waits until the
// engine has ended the answer, so that no two copies live and the time that an
// abort takes is known.
func (r *request) takeBack() {
	in := r.current.Load()
	if in == nil || in.rid == "" {
		r.x.Cancel()
		return
	}
	r.aborts.begin()
	r.s.abortThen(in.up, in.rid, &r.lane.ordered, func() {
		late := time.NewTimer(abortPatience)
		defer late.Stop()
		select {
		case <-r.lane.over:
		case <-late.C:
		}
		r.x.Cancel()
		r.aborts.end()
	})
}

// abortPatience is how long an engine that was told to abort may take to end the
// answer: more than a step of a large prefill.
const abortPatience = 3 * time.Second

// exchangeOver tells a preemption under way that the engine's answer has ended.
func (r *request) exchangeOver() {
	select {
	case r.lane.over <- struct{}{}:
	default:
	}
}

// hasLeft tells whether the client was seen leaving.
func (r *request) hasLeft() bool {
	if r.conn == nil {
		return false
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.conn.gone
}

// abortThen tells SGLang to stop a request by its name and then calls done, which
// closes the connection that carries it. ordered is set just before: an answer
// that was complete earlier was not aborted.
func (s *Server) abortThen(up *upstream, rid string, ordered *atomic.Bool, done func()) {
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		var abort engines.Exchange
		body := []byte(`{"rid":"` + rid + `"}`)
		head := appendHead(nil, &up.Target, nil, &headOf{
			method: []byte("POST"), uri: []byte("/abort_request"), raw: []byte("Content-Type: application/json\r\n"), bodyLength: len(body), apiKey: up.APIKey, extra: up.extraHead,
		})
		stop := time.AfterFunc(time.Second, abort.Cancel)
		ordered.Store(true)
		err := abort.Do(up.pool, head, [][]byte{body}, false, engines.Limits{})
		if err == nil {
			if status := abort.Answer.Status; status >= 400 {
				err = fmt.Errorf("POST /abort_request is answered with %d: long prompts are only held back from now on", status)
				up.noAbort.Store(true)
			} else {
				_, err = io.Copy(io.Discard, readerOf(&abort))
			}
		}
		stop.Stop()
		abort.Close()
		if err != nil {
			s.log.Warn("aborting a request failed: the engine finds out by the closed connection", "engine", up.Name, "error", err)
		}
		done()
	}()
}

// readerOf gives Read buffers that are large enough.
func readerOf(x *engines.Exchange) io.Reader { return readerFunc(x.Read) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
