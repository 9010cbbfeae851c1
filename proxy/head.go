package proxy

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/engines"
)

// headRules say which request headers stay behind besides the hop-by-hop ones.
type headRules struct {
	strip map[string]bool // lower case: own headers and guarded ones
}

// headOf is what one request's head upstream is made of.
type headOf struct {
	method, uri []byte // as the client sent them
	raw         []byte // the client's raw header lines
	bodyLength  int    // -1: the request has no body and gets no content-length
	decoded     bool   // the body's content coding was taken off
	apiKey      string // replaces the client's credentials; "" passes them
	extra       []byte // whole header lines that the configuration sets for this engine
	requestID   string // added as x-request-id; "" adds none
	slice       bool   // of a slice: a request of our own beside the client's, answered by JSON
}

// appendHead appends the request's head for the engine at target: the client's
// header lines byte for byte, but for hop-by-hop ones (RFC 9110 §7.6.1, those
// that Connection names included), the ones that rules strip, and the framing,
// which is always our own: a differing view of it is how requests are smuggled.
func appendHead(dst []byte, target *engines.Target, rules *headRules, h *headOf) []byte {
	path, query := splitURI(h.uri)
	dst = append(dst, h.method...)
	dst = append(dst, ' ')
	dst = target.AppendPath(dst, path)
	dst = append(dst, query...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, target.Host...)
	dst = append(dst, "\r\n"...)

	named := connectionNames(h.raw)
	for rest := h.raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i+1], rest[i+1:]
		} else {
			rest = nil
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			continue
		}
		name := line[:colon]
		dropping := isHopByHop(name) || isFraming(name) || listed(named, name) || rules.strips(name) ||
			(h.decoded && foldEqual(name, "content-encoding")) ||
			(h.apiKey != "" && (foldEqual(name, "authorization") || foldEqual(name, "x-api-key") || foldEqual(name, "api-key"))) ||
			(h.slice && (foldEqual(name, "idempotency-key") || foldEqual(name, "accept") || foldEqual(name, "x-request-id")))
		if !dropping {
			dst = append(dst, line...)
		}
	}
	if h.apiKey != "" {
		dst = append(dst, "Authorization: Bearer "...)
		dst = append(dst, h.apiKey...)
		dst = append(dst, "\r\n"...)
	}
	if h.requestID != "" {
		dst = append(dst, "X-Request-Id: "...)
		dst = append(dst, h.requestID...)
		dst = append(dst, "\r\n"...)
	}
	if h.slice {
		dst = append(dst, "Accept: application/json\r\n"...)
	}
	dst = append(dst, h.extra...)
	if h.bodyLength >= 0 {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(h.bodyLength), 10)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// splitURI cuts a request target into path and query ("?…" or empty). The
// absolute form loses its scheme and host.
func splitURI(uri []byte) (path, query []byte) {
	if len(uri) > 0 && uri[0] != '/' {
		if i := bytes.Index(uri, []byte("://")); i > 0 {
			uri = uri[i+3:]
			if j := bytes.IndexAny(uri, "/?"); j >= 0 {
				uri = uri[j:]
			} else {
				uri = nil
			}
		}
	}
	path = uri
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		path, query = uri[:i], uri[i:]
	}
	if len(path) == 0 {
		path = []byte("/")
	}
	return path, query
}

func (r *headRules) strips(name []byte) bool {
	if r == nil || len(r.strip) == 0 || len(name) > 64 {
		return false
	}
	var lower [64]byte
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return r.strip[string(lower[:len(name)])]
}

// isHopByHop names the headers that end at each hop.
func isHopByHop(name []byte) bool {
	switch len(name) {
	case 2:
		return foldEqual(name, "te")
	case 7:
		return foldEqual(name, "trailer") || foldEqual(name, "upgrade")
	case 10:
		return foldEqual(name, "connection") || foldEqual(name, "keep-alive")
	case 17:
		return foldEqual(name, "transfer-encoding")
	}
	return len(name) > 6 && foldEqual(name[:6], "proxy-")
}

// isFraming names the request headers that this hop writes itself or answers.
func isFraming(name []byte) bool {
	switch len(name) {
	case 4:
		return foldEqual(name, "host")
	case 6:
		return foldEqual(name, "expect")
	case 14:
		return foldEqual(name, "content-length")
	}
	return false
}

// connectionNames is the value of the Connection header if it names other
// headers: the usual values name none.
func connectionNames(raw []byte) []byte {
	var named []byte
	for rest := raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if len(line) < 11 || line[10] != ':' || !foldEqual(line[:10], "connection") {
			continue
		}
		value := bytes.TrimSpace(line[11:])
		if foldEqual(value, "keep-alive") || foldEqual(value, "close") {
			continue
		}
		if named != nil {
			named = append(append(append([]byte(nil), named...), ','), value...)
			continue
		}
		named = value
	}
	return named
}

// listed tells whether the comma-separated list holds name.
func listed(list, name []byte) bool {
	for len(list) > 0 {
		part := list
		if i := bytes.IndexByte(list, ','); i >= 0 {
			part, list = list[:i], list[i+1:]
		} else {
			list = nil
		}
		if bytes.EqualFold(bytes.TrimSpace(part), name) {
			return true
		}
	}
	return false
}

// foldEqual compares ASCII without case; lower is lower case.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// copyAnswerHead writes the engine's end-to-end headers into the response. The
// length is set by whoever sets the body.
func copyAnswerHead(dst *fasthttp.ResponseHeader, a *engines.Answer) {
	dst.SetStatusCode(a.Status)
	named := connectionNames(a.Header)
	a.EachHeader(func(name, value []byte) {
		if isHopByHop(name) || foldEqual(name, "content-length") || listed(named, name) {
			return
		}
		if foldEqual(name, "content-type") {
			dst.SetContentTypeBytes(value)
			return
		}
		dst.AddBytesKV(name, value)
	})
}
