package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"time"
)

const maxBody = 256 << 20

// connection is the key under which a request's context has its net.Conn.
type connection struct{}

// handle is the way of every request: journal, faults, route.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()

	path := r.URL.Path
	if strings.HasPrefix(path, "/sim/") {
		s.control(w, r)
		return
	}
	var body bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= maxBody {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		panic(http.ErrAbortHandler)
	}
	e := &Entry{Method: r.Method, Path: path, Query: r.URL.RawQuery, Header: r.Header, BodyBytes: body.Len()}
	if body.Len() > 0 {
		sum := sha256.Sum256(body.Bytes())
		e.BodySHA256 = hex.EncodeToString(sum[:])
		if s.opt.KeepBodies {
			e.Body = body.Bytes()
		}
	}
	conn, _ := r.Context().Value(connection{}).(net.Conn)
	s.journal.open(e, conn)
	defer s.journal.finish(e, func(*Entry) {})

	f, generation := familyOf(path)
	x := &exchange{s: s, w: w, r: r, ctl: http.NewResponseController(w), entry: e, body: body.Bytes()}
	h := w.Header()
	h.Set("Server", "uvicorn")
	if s.opt.Mode == Llama {
		h.Set("Server", "llama.cpp")
	}
	h.Set("Vary", "Origin")
	if s.opt.Mode == VLLM {
		h.Set("X-Request-Id", hexID(s.ids.Add(1))+hexID(uint64(e.Seq)))
	}
	if x.fault = s.faults.take(path, generation, x.body); x.fault != nil {
		s.journal.note(e, func(e *Entry) { e.Fault = string(x.fault.Kind) })
		if x.early(f) {
			return
		}
	}
	if s.opt.APIKey != "" && strings.HasPrefix(path, "/v1") && r.Header.Get("Authorization") != "Bearer "+s.opt.APIKey && r.Header.Get("X-Api-Key") != s.opt.APIKey {
		x.json(http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
		return
	}
	if generation {
		if r.Method != http.MethodPost {
			x.wrongMethod("POST")
			return
		}
		x.generate(f)
		return
	}
	x.page(path)
}

func familyOf(path string) (family, bool) {
	switch path {
	case "/v1/chat/completions":
		return chat, true
	case "/v1/completions":
		return completions, true
	case "/v1/messages":
		return messages, true
	case "/v1/responses":
		return responses, true
	}
	return chat, false
}

// exchange is one request with its answer.
type exchange struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	ctl   *http.ResponseController
	entry *Entry
	body  []byte
	fault *Fault
	sent  int  // events written
	dead  bool // the connection is ours no more
}

// early lets a fault act before any work; true if that was all.
func (x *exchange) early(f family) bool {
	o := x.fault
	switch {
	case o.Kind == FaultSlowHeaders:
		return !x.hold(o.Delay)
	case o.Kind == FaultStatus:
		if o.Delay > 0 && !x.hold(o.Delay) {
			return true
		}
		if o.RetryAfter != "" {
			x.w.Header().Set("Retry-After", o.RetryAfter)
		}
		p := &problem{status: o.Status, kind: kindOf(x.s.opt.Mode, f, o.Status), text: o.Message}
		x.json(o.Status, p.body(x.s.opt.Mode, f))
		return true
	case o.Kind == FaultReset && o.After == 0:
		if o.Delay > 0 && !x.hold(o.Delay) {
			return true
		}
		x.finish(func(e *Entry) { e.Outcome = Broken })
		x.reset()
		return true
	}
	return false
}

// hold waits in real time, or until the client leaves (false). Delay 0 waits for the client alone.
func (x *exchange) hold(d time.Duration) bool {
	ctx := x.r.Context()
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
		}
	} else {
		<-ctx.Done()
	}
	x.note(func(e *Entry) { e.Left, e.Outcome = time.Now(), Gone })
	return false
}

// reset breaks the connection.
func (x *exchange) reset() {
	x.note(func(e *Entry) { e.Outcome = Broken })
	x.dead = true
	conn, _, err := x.ctl.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if c, ok := conn.(*gateConn); ok {
		c.reset()
	} else {
		conn.Close()
	}
}

func (x *exchange) note(change func(e *Entry)) { x.s.journal.note(x.entry, change) }

// finish notes how the request ended. It comes before the last bytes of the answer: see Entry.Done.
func (x *exchange) finish(change func(e *Entry)) { x.s.journal.finish(x.entry, change) }

// json writes a whole answer.
func (x *exchange) json(status int, body []byte) {
	x.write(status, "application/json", body)
}

func (x *exchange) write(status int, kind string, body []byte) {
	h := x.w.Header()
	if kind != "" {
		h.Set("Content-Type", kind)
	} else {
		h["Content-Type"] = nil
	}
	h.Set("Content-Length", string(num(nil, len(body))))
	cut := x.fault != nil && (x.fault.Kind == FaultReset || x.fault.Kind == FaultTruncate)
	x.finish(func(e *Entry) {
		e.Status = status
		switch {
		case cut:
			e.Outcome = Broken
		case e.Outcome != Open: // aborted
		case status >= 400:
			e.Outcome = Refused
		default:
			e.Outcome = Answered
		}
	})
	x.w.WriteHeader(status)
	if cut {
		x.w.Write(body[:len(body)/2])
		x.ctl.Flush()
		x.reset()
		return
	}
	x.w.Write(body)
}

func (x *exchange) refuse(f family, p *problem) { x.json(p.status, p.body(x.s.opt.Mode, f)) }

func (x *exchange) wrongMethod(allow string) {
	x.w.Header().Set("Allow", allow)
	x.json(http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
}
