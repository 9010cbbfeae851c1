package proxy

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring"
	"github.com/warmring/warmring/ring/identity"
	"github.com/warmring/warmring/ring/prompt"
)

// request is the life of one client request.
//
//	receive ─▶ identify ─▶ place ─▶ exchange ─▶ hold ─▶ relay ─▶ done
//	   │          │          ▲         │ engine    │ first      ▲
//	   │          │          └─────────┘ failed    │ token      │
//	   └──────────┴── refuse ──────────────────────┴── whole ───┘
//
// Until the commit point, the arrow into relay or whole, an engine that fails
// only means the next one. The handler's goroutine runs everything before it;
// after it the server pulls the relay from the same goroutine. The hang-up
// watcher may call clientGone at any time in between.
type request struct {
	s        *Server
	settings *settings // as they were when it came
	ctx      *fasthttp.RequestCtx
	conn     *clientConn // nil for connections that cannot be watched

	id      string
	started time.Time
	route   wire.Route
	model   string // as the client wrote it, bounded
	body    []byte // as it goes upstream, before splices
	decoded bool

	scratch  *scratch // nil after the commit point
	aborts   pending  // aborts in the background that still refer to this request
	identity identity.Identity
	decision ring.Decision
	charge   *ring.Charge
	up       *upstream
	x        engines.Exchange
	sniff    wire.Sniffer
	relay    relay

	attempts  int
	waited    time.Duration
	received  int    // body bytes as the client sent them
	seed      uint64 // scope of this request's keys
	tenant    uint64
	promptKey uint64 // fingerprint of the whole prompt, 0 = none
	finished  bool
	firstByte time.Duration // to the commit point; 0 before
	usage     wire.Usage
	bypasses  bool // the engine computes all of its prompt, whatever is cached
	own       int  // of usage.Cached: what earlier runs of this request computed
	status    int
	end       endReason
	refusal   string // code of the proxy's own error
	sent      int64
	asked     bool // stream usage that the client did not ask for
	stream    bool
	answerID  string        // the id under which the client knows the answer, if the engine chose one
	rid       string        // SGLang's handle for /abort_request
	gone      chan struct{} // told once when the client has gone

	lane     lanePart
	comeBack time.Duration // when a refused client should try again; 0 = soon

	detached   bool                    // a keepalive ends it, not the handler
	current    atomic.Pointer[sending] // what is under way, for stop
	next, prev *request                // in the list of live requests
}

// sending is what must be known of an exchange under way to stop it. It does not
// change.
type sending struct {
	up  *upstream
	rid string // SGLang's handle for /abort_request; "" where closing is enough
}

// scratch is what a request needs up to its commit point and no longer: an idle
// stream must not hold a prompt's fingerprints.
type scratch struct {
	prompt  prompt.Prompt
	turn    ring.Turn
	head    []byte
	splices splices
	pieces  [][]byte
	held    []byte
	exclude []string
	kept    keptAnswer
	alias   bool   // turn.Model is another name than the client's
	broken  bool   // an engine closed without an answer once: it may have begun the work
	fixed   []byte // text of splices
	forward []byte // the body with its splices, where a slice is cut from it
	slice   []byte // body of a slice
}

// keptAnswer is an engine's refusal, kept while another engine is tried.
type keptAnswer struct {
	set    bool
	status int
	header []byte // raw lines
	body   []byte
}

// endReason says how a request ended, for the log, the metrics and the breaker.
type endReason uint8

const (
	endNone          endReason = iota
	endOK                      // answered as the engine meant it
	endClientError             // 4xx
	endRefused                 // this proxy's own refusal: full, draining, nobody there
	endClientClosed            // the client left
	endUpstreamReset           // the engine broke off after the commit point
	endUpstreamError           // the engine said 5xx, or an error inside a stream
	endTimeout                 // a limit of this proxy passed
	endStopped                 // this proxy was stopped and cut it
	endPanic
	endReasons // how many there are
)

func (e endReason) String() string {
	return [...]string{"none", "ok", "client_error", "refused", "client_closed", "upstream_reset", "upstream_error", "proxy_timeout", "proxy_stopped", "panic"}[e]
}

// errGone ends the handling of a request whose client has left.
var errGone = errors.New("client closed the connection")

// serve runs the request up to its commit point.
func (r *request) serve() {
	if !r.receive() {
		return
	}
	r.identify()
	if r.conn != nil {
		r.conn.arm(r.clientGone)
	}
	if every := r.settings.Keepalive.Comments.Std(); every > 0 && r.stream {
		r.runWithComments(every)
		return
	}
	r.run()
}
