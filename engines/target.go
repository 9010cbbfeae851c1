package engines

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Target is a base URL taken apart once, so that no request has to parse it.
type Target struct {
	TLS     bool
	Address string // host:port to dial; IPv6 in brackets
	Host    string // Host header: without the scheme's default port and without an IPv6 zone
	Name    string // host alone, for TLS
	Prefix  string // path in front of the version segment, no trailing slash; "" or "/serve/a"
	Version string // version segment that the engine's API stands under: "v1", or what the base URL ends in ("v4")
}

const urlHint = `write "http://host:port"`

// ParseTarget reads a base URL. It may end in a slash, in /v1 or another version, and may have a path in front of that. User, query and fragment are refused, and never repeated in the error.
func ParseTarget(raw string) (Target, error) {
	quoted := quoteURL(raw)
	if raw == "" {
		return Target{}, errors.New("the URL is empty; " + urlHint)
	}
	scheme, _, ok := strings.Cut(raw, "://")
	if !ok {
		return Target{}, fmt.Errorf("%s has no scheme; write %s", quoted, quoteURL("http://"+strings.TrimLeft(raw, "/")))
	}
	if s := strings.ToLower(scheme); s != "http" && s != "https" {
		return Target{}, fmt.Errorf("%s: only http and https engines can be spoken to", quoted)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Target{}, fmt.Errorf("%s is not a URL (%s); %s", quoted, cause(err, raw), urlHint)
	}
	switch {
	case u.User != nil || strings.Contains(u.Host, "@"):
		return Target{}, errors.New(`the URL has a user or password in it; write the key into api_key_env`)
	case u.RawQuery != "" || u.ForceQuery:
		return Target{}, errors.New("the URL has a query in it; write the path alone, and keys into api_key_env")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return Target{}, fmt.Errorf("the URL has a fragment (#…) in it; %s", urlHint)
	case u.Hostname() == "":
		return Target{}, fmt.Errorf("%s has no host; %s", quoted, urlHint)
	}
	t := Target{TLS: strings.EqualFold(u.Scheme, "https"), Name: strings.ToLower(u.Hostname())}
	if strings.ContainsAny(t.Name, " \t\r\n\"<>\\^`{|}") || strings.Contains(t.Name, ":") && !isIPv6(t.Name) {
		return Target{}, fmt.Errorf("%s: %q is not a host", quoted, t.Name)
	}
	port, standard := u.Port(), "80"
	if t.TLS {
		standard = "443"
	}
	if port == "" {
		port = standard
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Target{}, fmt.Errorf("%s: %q is not a port", quoted, port)
	}
	t.Address = net.JoinHostPort(t.Name, port)
	zoneless, _, _ := strings.Cut(t.Name, "%")
	if t.Host = net.JoinHostPort(zoneless, port); port == standard {
		t.Host = strings.TrimSuffix(t.Host, ":"+port)
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return Target{}, fmt.Errorf("%s: dots in the path; write the path they lead to", quoted)
		}
	}
	t.Version = "v1"
	if slash := strings.LastIndexByte(path, '/'); slash >= 0 && isVersion([]byte(path[slash+1:])) {
		t.Version, path = path[slash+1:], strings.TrimRight(path[:slash], "/")
	}
	t.Prefix = path
	return t, nil
}

// String is the base URL in its normal form: equal for two spellings of one engine.
func (t *Target) String() string {
	scheme := "http://"
	if t.TLS {
		scheme = "https://"
	}
	s := scheme + t.Address + t.Prefix
	if t.Version != "v1" {
		s += "/" + t.Version
	}
	return s
}

// AppendPath appends the path (query and all) that the engine gets for a client's path. A version segment is never doubled: /v1/x under the base …/v4 is …/v4/x, and the paths of the known API
// families get the segment when the client left it out. All else is the prefix and the path as it came.
func (t *Target) AppendPath(dst, path []byte) []byte {
	dst = append(dst, t.Prefix...)
	if len(path) == 0 || path[0] != '/' {
		dst = append(dst, '/')
		return append(dst, path...)
	}
	rest, versioned := cutVersion(path)
	switch {
	case versioned && t.Version != "v1":
		dst = append(append(dst, '/'), t.Version...)
		return append(dst, rest...)
	case !versioned && needsVersion(path):
		dst = append(append(dst, '/'), t.Version...)
	}
	return append(dst, path...)
}

// cutVersion takes /v1 off the front of a path.
func cutVersion(path []byte) (rest []byte, ok bool) {
	const v1 = "/v1"
	if len(path) < len(v1) || string(path[:len(v1)]) != v1 {
		return path, false
	}
	if rest = path[len(v1):]; len(rest) == 0 || rest[0] == '/' || rest[0] == '?' {
		return rest, true
	}
	return path, false
}

// needsVersion tells the API paths that no engine serves without a version segment.
func needsVersion(path []byte) bool {
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	switch string(path) {
	case "/chat/completions", "/completions", "/messages", "/messages/count_tokens", "/responses", "/models":
		return true
	}
	return false
}

// isVersion tells whether a path segment is v and digits, perhaps with a stage behind ("v1", "v4", "v1beta2").
func isVersion(segment []byte) bool {
	if len(segment) < 2 || segment[0]|0x20 != 'v' || segment[1] < '0' || segment[1] > '9' {
		return false
	}
	rest := bytes.TrimLeft(segment[1:], "0123456789")
	for _, stage := range [...]string{"alpha", "beta"} {
		rest = bytes.TrimPrefix(rest, []byte(stage))
	}
	return len(bytes.TrimLeft(rest, "0123456789")) == 0
}

func isIPv6(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.Is6()
}

// quoteURL repeats a URL in an error, but for what may be a secret in it.
func quoteURL(raw string) string {
	if strings.ContainsAny(raw, "@?") {
		return "the URL"
	}
	if len(raw) > 120 {
		raw = strings.ToValidUTF8(raw[:120], "") + "…"
	}
	return strconv.Quote(raw)
}

// cause is the reason in a url.Error without the URL itself.
func cause(err error, raw string) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if strings.ContainsAny(raw, "@?") {
		return "it cannot be read"
	}
	return err.Error()
}
