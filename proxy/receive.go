package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/wire"
	"github.com/warmring/warmring/ring/identity"
	"github.com/warmring/warmring/ring/prompt"
)

// receive checks the request's form and takes its content coding off. It returns
// false if it has answered already.
func (r *request) receive() bool {
	s, ctx := r.s, r.ctx
	h := &ctx.Request.Header
	switch {
	case s.refusing.Load():
		ctx.SetConnectionClose()
		r.refuse(fasthttp.StatusServiceUnavailable, "shutting_down", "warmring is shutting down")
		return false
	case !h.IsHTTP11() && string(h.Protocol()) != "HTTP/1.0":
		ctx.SetConnectionClose()
		r.refuse(fasthttp.StatusHTTPVersionNotSupported, "http_version", "only HTTP/1.1 and HTTP/1.0 are spoken here")
		return false
	case h.ConnectionUpgrade() && bytes.Contains(bytes.ToLower(h.Peek("Upgrade")), []byte("websocket")):
		// Offers of other protocols, h2c above all, may be ignored (RFC 9110
		// §7.8): Java's client makes one with each request.
		r.refuse(fasthttp.StatusNotImplemented, "upgrade_not_supported", "WebSocket is not supported; use plain HTTP/1.1 requests")
		return false
	}
	if fault := headFault(h.RawHeaders()); fault != "" {
		ctx.SetConnectionClose()
		r.refuse(fasthttp.StatusBadRequest, "invalid_http", fault)
		return false
	}
	if s.draining.Load() {
		ctx.SetConnectionClose() // the next request over it should reach another proxy
	}
	path, _ := splitURI(h.RequestURI())
	if reason, refused := r.settings.gate.Refused(path); refused {
		r.refuse(fasthttp.StatusForbidden, "path_not_allowed", fmt.Sprintf("%.100s is not open to clients: %s; an operator can list it under [paths] allow", path, reason))
		return false
	}
	if (ctx.IsGet() || ctx.IsHead()) && r.answersModels(path) {
		return false
	}
	r.body = ctx.Request.Body()
	r.received = len(r.body)
	if encoding := h.Peek("Content-Encoding"); len(encoding) > 0 && len(r.body) > 0 {
		plain, err := decodeBody(encoding, r.body, int(s.cfg.Server.MaxBody))
		switch {
		case errors.Is(err, errBodyTooLarge):
			r.refuse(fasthttp.StatusRequestEntityTooLarge, "request_too_large", err.Error()+"; the limit is server.max_body")
			return false
		case errors.Is(err, errUnknownCoding):
			r.refuse(fasthttp.StatusUnsupportedMediaType, "unsupported_content_encoding", err.Error())
			return false
		case err != nil:
			r.refuse(fasthttp.StatusBadRequest, "invalid_body", err.Error())
			return false
		}
		r.body, r.decoded = plain, true
	}
	return true
}

// headFault looks for what the server lets pass and an engine may read in another
// way, which is how requests are smuggled: a length stated in two ways, names
// with blanks in them, folded lines. It returns what is wrong, "" if nothing is.
func headFault(raw []byte) string {
	var length, coding bool
	for rest := raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		colon := 0
		for colon < len(line) && tokenBytes[line[colon]] {
			colon++
		}
		if colon == len(line) || colon == 0 || line[colon] != ':' {
			if len(line) == 0 || string(line) == "\r" {
				continue
			}
			return "a header line is folded or its name is not valid"
		}
		switch {
		case colon == 14 && foldEqual(line[:14], "content-length"):
			length = true
		case colon == 17 && foldEqual(line[:17], "transfer-encoding"):
			coding = true
		}
	}
	if length && coding {
		return "both content-length and transfer-encoding were sent; send one of them"
	}
	return ""
}

// tokenBytes are the bytes of header names (RFC 9110 §5.6.2).
var tokenBytes = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && c < 0x7f && bytes.IndexByte([]byte("\"(),/:;<=>?@[\\]{}"), byte(c)) < 0
	}
	return t
}()

// identify reads the body once and finds whose turn of what session it is.
func (r *request) identify() {
	s, h := r.s, &r.ctx.Request.Header
	sc := r.scratch
	p := &sc.prompt
	family := prompt.None
	if r.route.Generation {
		family = r.route.Family
	}
	p.Recall(s.memory, r.body, family)
	r.stream = p.Stream && r.route.Generation
	if p.Fallback != "" && r.route.Generation {
		s.metrics.unparsed(p.Fallback)
		r.tellUnparsed(p.Fallback)
	}
	name := p.ModelName(r.body)
	r.model = string(name[:min(len(name), 256)])
	tenant := identity.Tenant(s.tenantSecret, h.Peek("Authorization"), h.Peek("X-Api-Key"))
	t := &sc.turn
	t.Model = name
	sc.alias = false
	if len(r.settings.Models.Alias) > 0 || r.settings.Models.Default != "" {
		if resolved := r.settings.Models.Resolve(string(name), s.fleet.KnownModel); resolved != string(name) {
			t.Model = []byte(resolved)
			sc.alias = true
		}
	}
	r.tenant = tenant
	t.Seed = prompt.Seed(tenant, t.Model)
	r.seed = t.Seed
	t.Prompt = nil
	t.Session, t.Parent, t.MaxTokens, t.Continues = 0, 0, 0, false
	if !r.route.Generation {
		path, _ := splitURI(h.RequestURI())
		if id := wire.ResponseIDOf(path); id != nil {
			if of, ok := s.previous.Get(identity.Key(prompt.Seed(r.tenant, nil), id)); ok {
				t.Session, t.Seed, t.Continues = of.session, of.seed, true
			}
		}
		return
	}
	p.Fingerprint(r.body, t.Seed)
	r.promptKey = p.Whole
	t.Prompt = p
	t.MaxTokens = p.MaxTokens
	r.identity = r.settings.rules.Identify(r.header, r.body, p, t.Seed)
	t.Session, t.Parent = r.identity.Session, r.identity.Parent
	if t.Session == 0 && r.identity.PreviousResponse != 0 {
		if of, ok := s.previous.Get(r.identity.PreviousResponse); ok {
			t.Session, t.Continues = of.session, true
		}
	}
}

// tellUnparsed logs once a minute that prompts cannot be read: placement by raw
// bytes works so well that nobody would notice (C205).
func (r *request) tellUnparsed(reason string) {
	now := r.started.UnixNano()
	last := r.s.unparsedTold.Load()
	if now-last < int64(time.Minute) || !r.s.unparsedTold.CompareAndSwap(last, now) {
		return
	}
	r.s.log.Warn("a prompt could not be read and is placed by its raw bytes; see warmring_unparsed_total; this line comes once a minute at most",
		"request", r.id, "route", r.route.Template, "why", reason, "bytes", len(r.body))
}

func (r *request) header(name string) []byte { return r.ctx.Request.Header.Peek(name) }

// prepare builds the request for the engine: head and the body's pieces.
func (r *request) prepare() {
	sc := r.scratch
	p := &sc.prompt
	sc.dropSlice()
	sc.splices.n = 0
	sc.fixed = sc.fixed[:0]
	r.asked, r.rid = false, ""
	if p.Open > 0 { // a whole JSON object, with a prompt or without
		r.spliceModel()
		if r.route.Generation {
			r.spliceUsage()
			r.spliceRID()
			r.spliceBilling()
		}
	}
	var length int
	sc.pieces, length = sc.splices.pieces(sc.pieces[:0], r.body)
	h := &r.ctx.Request.Header
	if length == 0 && !hasBody(h) {
		length = -1
	}
	r.prepareHead(length)
}

// prepareHead builds the head for a body of so many bytes; -1 is none.
func (r *request) prepareHead(length int) {
	sc, up, h := r.scratch, r.up, &r.ctx.Request.Header
	sc.head = appendHead(sc.head[:0], &up.Target, &r.settings.strip, &headOf{
		method: h.Method(), uri: h.RequestURI(), raw: h.RawHeaders(), bodyLength: length,
		decoded: r.decoded, apiKey: up.APIKey, extra: up.extraHead, requestID: r.idForEngine(), slice: r.lane.tokens > 0,
	})
}

// idForEngine is the request's id for an engine that would not get one from the
// client, or that of a slice of it.
func (r *request) idForEngine() string {
	if r.lane.tokens > 0 && (r.settings.Headers.RequestID || len(r.header("X-Request-Id")) > 0 && !r.settings.strip.strips([]byte("x-request-id"))) {
		return r.id + "-s" + strconv.Itoa(r.lane.sliceNo)
	}
	if !r.settings.Headers.RequestID || len(r.header("X-Request-Id")) > 0 {
		return ""
	}
	return r.id
}

// hasBody tells a request that has an empty body from one that has none.
func hasBody(h *fasthttp.RequestHeader) bool {
	return h.ContentLength() >= 0 && !h.IsGet() && !h.IsHead()
}

// spliceModel writes an alias' target over the client's name for the model.
func (r *request) spliceModel() {
	sc := r.scratch
	if span := sc.prompt.Model; sc.alias && span.End > span.Start {
		sc.splices.add(span.Start, span.End, sc.turn.Model)
	}
}

// spliceUsage asks for the usage of a stream whose client did not: without it the
// engine's real cached tokens stay unknown. The chunk is taken out again.
func (r *request) spliceUsage() {
	sc := r.scratch
	p := &sc.prompt
	if !p.Stream || p.IncludeUsage || p.Open == 0 || !r.ctx.Request.Header.IsHTTP11() || (p.Family != prompt.Chat && p.Family != prompt.Completions) {
		return
	}
	if k := r.up.DetectedKind(); k != engines.VLLM && k != engines.SGLang {
		return // an own backend may refuse what it does not know
	}
	value := r.body[p.StreamOptions.Start:p.StreamOptions.End]
	switch {
	case len(value) == 0:
		r.asked = sc.splices.add(p.Open, p.Open, []byte(`"stream_options":{"include_usage":true},`))
	case string(value) == "null":
		r.asked = sc.splices.add(p.StreamOptions.Start, p.StreamOptions.End, []byte(`{"include_usage":true}`))
	case len(bytes.TrimSpace(value[1:len(value)-1])) == 0:
		r.asked = sc.splices.add(p.StreamOptions.Start, p.StreamOptions.End, []byte(`{"include_usage":true}`))
	}
	// Options that say something else, include_usage false included, are the
	// client's word and stay.
}

// nameRequest makes a new name for SGLang's /abort_request and its member's text.
func (r *request) nameRequest() bool {
	if r.up.DetectedKind() != engines.SGLang || !r.canBeNamed() {
		return false
	}
	r.rid = r.s.nextRID()
	r.scratch.fixed = append(append(append(r.scratch.fixed[:0], `"rid":"`...), r.rid...), `",`...)
	return true
}

// spliceRID gives the request a name that SGLang's /abort_request knows. A name
// of the client's own is left alone.
func (r *request) spliceRID() {
	sc := r.scratch
	if !r.nameRequest() {
		return
	}
	if !sc.splices.add(sc.prompt.Open, sc.prompt.Open, sc.fixed) {
		r.rid = ""
	}
}
