package proxy

import (
	"encoding/json"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/proxy/wire"
)

// keepalive is the body of a stream whose client is told that it still lives
// while the engine is silent (keepalive.comments). The request runs up to its
// commit point on a goroutine of its own, which the handler or Close waits for.
// If that takes longer than the interval, status 200 and comment lines leave
// before anything is known; from then on a failure can only be told inside the
// stream. The first byte of the engine's ends the comments.
type keepalive struct {
	r      *request
	client *fasthttp.RequestCtx // r.ctx is a stand-in until the outcome is known
	every  time.Duration
	ticker *time.Ticker
	done   chan struct{} // closed when the request has committed or ended

	begun  bool   // the first comment is out
	known  bool   // done was seen
	stream bool   // the relay goes on from here
	relay  bool   // the relay is to be closed
	last   []byte // the error event, not yet released
}

// comment is a whole block, so that it can stand between any two events.
const comment = ": keep-alive\n\n"

// runWithComments is run for clients that must not wait in silence.
func (r *request) runWithComments(every time.Duration) {
	k := &keepalive{r: r, client: r.ctx, every: every, done: make(chan struct{})}
	stand := &fasthttp.RequestCtx{}
	r.ctx.Request.Header.CopyTo(&stand.Request.Header)
	r.ctx = stand
	go func() {
		defer close(k.done)
		defer func() {
			if p := recover(); p != nil {
				r.s.panicked(r, p)
			}
		}()
		r.run()
	}()
	timer := time.NewTimer(every)
	defer timer.Stop()
	select {
	case <-k.done:
		k.adopt()
	case <-timer.C:
		k.begin()
	}
}

// adopt gives the client the answer that came in time, as if there had been no
// stand-in.
func (k *keepalive) adopt() {
	r := k.r
	from, to := &r.ctx.Response, &k.client.Response
	r.ctx = k.client
	from.Header.CopyTo(&to.Header)
	to.Header.SetNoDefaultContentType(true)
	to.SkipBody = from.SkipBody
	if from.IsBodyStream() {
		k.client.Request.ResetBody()
		to.SetBodyStream(&r.relay, from.Header.ContentLength())
		return
	}
	to.SetBodyRaw(from.Body())
}

// begin commits to a stream of which nothing is known yet.
func (k *keepalive) begin() {
	r := k.r
	r.detached = true
	resp := &k.client.Response
	resp.SetStatusCode(fasthttp.StatusOK)
	resp.Header.SetContentType("text/event-stream; charset=utf-8")
	resp.Header.Set("Cache-Control", "no-cache")
	resp.Header.Set("X-Accel-Buffering", "no")
	if r.settings.Headers.RequestID {
		resp.Header.Set("X-Request-Id", r.id)
	}
	k.ticker = time.NewTicker(k.every)
	resp.SetBodyStream(k, -1)
}

// Read gives comments until the outcome is known, and then what became of the
// request.
func (k *keepalive) Read(p []byte) (int, error) {
	if !k.known {
		if k.begun {
			select {
			case <-k.done:
				k.learn()
			case <-k.ticker.C:
				return k.comment(p), nil
			}
		} else {
			k.begun = true
			return k.comment(p), nil
		}
	}
	if k.stream {
		return k.r.relay.Read(p)
	}
	if n := copy(p, k.last); n > 0 {
		k.last = k.last[n:]
		return n, nil
	}
	return 0, errBrokenEnd
}

func (k *keepalive) comment(p []byte) int {
	if limit := k.r.settings.Timeouts.ClientWrite.Std(); limit > 0 && !k.r.s.stopped.Load() {
		_ = k.client.Conn().SetWriteDeadline(time.Now().Add(limit))
	}
	return copy(p, comment)
}

// learn takes over from the request's goroutine, which has ended.
func (k *keepalive) learn() {
	k.known = true
	r := k.r
	resp := &r.ctx.Response
	r.ctx = k.client
	k.client.Request.ResetBody()
	k.relay = resp.IsBodyStream()
	status := resp.StatusCode()
	switch {
	case k.relay && r.sniffing():
		k.stream = true
	case status == statusClientClosed:
	case status < 300:
		k.last = wire.ErrorEvent(r.route.Family, fasthttp.StatusBadGateway, "", "the engine did not answer with a stream")
	default:
		k.last = wire.ErrorEvent(r.route.Family, status, "", errorMessage(resp.Body()))
	}
}

// sniffing tells that the answer under way is an event stream that is looked at.
func (r *request) sniffing() bool { return r.relay.sniffing }

// Close is called once by the server, after the last byte or when the client
// would not take more.
func (k *keepalive) Close() error {
	r := k.r
	k.ticker.Stop()
	if !k.known {
		if r.conn != nil {
			r.conn.hungUp()
		} else {
			r.clientGone()
		}
		<-k.done
		k.learn()
	}
	if k.relay {
		return r.relay.Close()
	}
	_ = k.client.Conn().SetWriteDeadline(time.Time{})
	r.s.recycle(r)
	return nil
}

// errorMessage is what an error answer says to people: the message of its JSON in
// whatever family's shape, else its text.
func errorMessage(body []byte) string {
	var shape struct {
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &shape) == nil {
		if shape.Error.Message != "" {
			return shape.Error.Message
		}
		if shape.Message != "" {
			return shape.Message
		}
	}
	return string(body[:min(len(body), 2048)])
}
