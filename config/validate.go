package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmring/warmring/engines"
)

// validate finds values that have the right type and make no sense, and fills in what depends on other values.
func (c *Config) validate(p *problems) {
	checkAddress("listen", c.Listen, true, p)
	checkAddress("admin.listen", c.Admin.Listen, false, p)
	if c.Admin.Listen != "" && sameAddress(c.Listen, c.Admin.Listen) {
		p.addf("admin.listen", "give it another port: clients must not reach it", "admin.listen %q and listen %q are one address", c.Admin.Listen, c.Listen)
	}
	c.validateEngines(p)
	c.validateServer(p)
	c.validateRouting(p)
	c.validateLanes(p)
	c.validateModels(p)
	c.validatePaths(p)
	oneOf("log.format", c.Log.Format, []string{"text", "json"}, p)
	oneOf("log.level", c.Log.Level, []string{"debug", "info", "warn", "error"}, p)
	c.validateCluster(p)
	c.expandSecret("identity.secret", &c.Identity.Secret, p)
	for i, source := range c.Identity.Sources {
		if strings.TrimSpace(source) == "" {
			p.addf(fmt.Sprintf("identity.sources.%d", i), "", "identity.sources: an empty source")
		}
	}
}

func (c *Config) validateServer(p *problems) {
	within("server.max_body", c.Server.MaxBody, 64<<10, 2<<30, p)
	within("server.max_header", c.Server.MaxHeader, 4<<10, 1<<20, p)
	within("server.read_timeout", c.Server.ReadTimeout, Duration(time.Second), Duration(time.Hour), p)
	within("server.idle_timeout", c.Server.IdleTimeout, Duration(time.Second), Duration(24*time.Hour), p)
	within("server.max_connections", c.Server.MaxConnections, 1, 1_000_000, p)
	within("drain.delay", c.Drain.Delay, 0, Duration(time.Hour), p)
	within("drain.limit", c.Drain.Limit, 0, Duration(24*time.Hour), p)
	within("timeouts.connect", c.Timeouts.Connect, Duration(10*time.Millisecond), Duration(time.Minute), p)
	within("timeouts.write", c.Timeouts.Write, Duration(time.Second), Duration(time.Hour), p)
	within("timeouts.first_byte", c.Timeouts.FirstByte, 0, Duration(24*time.Hour), p)
	within("timeouts.between_bytes", c.Timeouts.BetweenBytes, 0, Duration(24*time.Hour), p)
	within("timeouts.client_write", c.Timeouts.ClientWrite, Duration(time.Second), Duration(24*time.Hour), p)
	within("retry.attempts", c.Retry.Attempts, 1, 20, p)
	within("retry.wait", c.Retry.Wait, 0, Duration(10*time.Minute), p)
	within("retry.max_waiting", c.Retry.MaxWaiting, 0, 1_000_000, p)
	within("probe.interval", c.Probe.Interval, Duration(200*time.Millisecond), Duration(5*time.Minute), p)
	within("probe.timeout", c.Probe.Timeout, Duration(100*time.Millisecond), Duration(time.Minute), p)
	if c.Keepalive.Comments != 0 {
		within("keepalive.comments", c.Keepalive.Comments, Duration(time.Second), Duration(time.Hour), p)
	}
}

func (c *Config) validateRouting(p *problems) {
	within("routing.candidates", c.Routing.Candidates, 1, 64, p)
	within("routing.hysteresis", c.Routing.Hysteresis, 0, Duration(time.Hour), p)
	within("routing.session_idle", c.Routing.SessionIdle, Duration(time.Second), Duration(30*24*time.Hour), p)
	within("routing.max_sessions", c.Routing.MaxSessions, 1, 100_000_000, p)
	within("routing.virtual_nodes", c.Routing.VirtualNodes, 1, 10_000, p)
	within("routing.index_tokens", c.Routing.IndexTokens, 0, 1<<50, p)
}

func (c *Config) validateModels(p *problems) {
	for _, name := range sortedKeys(c.Models.Alias) {
		at, target := join("models.alias", name), c.Models.Alias[name]
		switch {
		case name == "" || target == "":
			p.addf(at, `write "name" = "model"`, "models.alias: an empty name")
		case name == target:
			p.addf(at, "leave it out", "models.alias: %q stands for itself", clip(name))
		case c.Models.Alias[target] != "":
			p.addf(at, fmt.Sprintf("write %q = %q", name, c.Models.Alias[target]), "models.alias: %q stands for %q, which is an alias itself", clip(name), clip(target))
		}
	}
	if target := c.Models.Alias[c.Models.Default]; target != "" {
		p.addf("models.default", fmt.Sprintf("write default = %q", target), "models.default: %q is an alias", clip(c.Models.Default))
	}
}

func (c *Config) validatePaths(p *problems) {
	if len(c.Paths.Allow) == 0 {
		return
	}
	closed := (&Paths{}).Gate()
	var names []string
	for _, admin := range AdminPaths() {
		names = append(names, admin.Path)
	}
	for i, path := range c.Paths.Allow {
		at := fmt.Sprintf("paths.allow.%d", i)
		if path == "*" || slices.Contains(names, path) {
			continue
		}
		if _, refused := closed.Refused([]byte(path)); refused && !strings.Contains(path, "*") {
			continue
		}
		hint := "leave it out: only the engines' admin paths are refused"
		if near := nearest(path, names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		p.addf(at, hint, "paths.allow: %q is not a refused path", clip(path))
	}
}

func (c *Config) validateEngines(p *problems) {
	if len(c.Engines) == 0 {
		p.addf("engine", "the smallest file that works:\n\n"+SmallestFile, "no engine: add one [[engine]] with its url")
		return
	}
	if len(c.Engines) > maxEngines {
		p.addf("engine", "", "%d engines are more than one proxy takes (%d)", len(c.Engines), maxEngines)
		return
	}
	names, targets := map[string]int{}, map[string]int{}
	for i := range c.Engines {
		e := &c.Engines[i]
		at := func(key string) string { return fmt.Sprintf("engine.%d.%s", i, key) }
		c.validateEngine(e, at, p)
		target, err := engines.ParseTarget(e.URL)
		switch {
		case e.URL == "":
			p.addf(at("url"), `add url = "http://host:port"`, "engine %d has no url", i+1)
			continue
		case err != nil:
			p.addError(at("url"), err)
			continue
		}
		if e.Name == "" {
			e.Name = target.Address
		}
		if first, taken := names[e.Name]; taken {
			p.addf(at("name"), "the ring is built from names: each needs its own", "engine name %q is taken by engine %d", clip(e.Name), first+1)
		} else {
			names[e.Name] = i
		}
		key := target.String()
		if first, taken := targets[key]; taken {
			p.addf(at("url"), "one engine is one cache: naming it twice counts its memory twice", "engine url %q is taken by engine %d", clip(e.URL), first+1)
		} else {
			targets[key] = i
		}
	}
}

func (c *Config) validateEngine(e *Engine, at func(string) string, p *problems) {
	if e.Name != "" && !validName(e.Name) {
		p.addf(at("name"), "letters, digits and . _ : - [ ], at most 128", "engine name %q has other characters or is too long", clip(e.Name))
	}
	if e.Kind != "" {
		oneOf(at("kind"), e.Kind, []string{"vllm", "sglang", "custom"}, p)
	}
	oneOf(at("preempt"), e.Preempt, []string{"auto", "yes", "no"}, p)
	switch {
	case !(e.Weight > 0):
		p.addf(at("weight"), "to take it out, drain it or leave it out", "engine.weight must be above 0")
	case e.Weight > 100:
		p.addf(at("weight"), "weights are relative: 1 is an ordinary engine, 2 one of twice the size", "engine.weight must be at most 100")
	}
	if e.KVTokens < 0 {
		p.addf(at("kv_tokens"), "0 is unknown", "engine.kv_tokens must not be negative")
	}
	if !strings.HasPrefix(e.Health, "/") || strings.ContainsAny(e.Health, " \t\r\n#") {
		p.addf(at("health"), `write a path: "/health"`, "engine.health %q is not a path", clip(e.Health))
	}
	within(at("max_idle"), e.MaxIdle, Duration(100*time.Millisecond), Duration(time.Hour), p)
	for i, model := range e.Models {
		if model == "" {
			p.addf(at(fmt.Sprintf("models.%d", i)), "", "engine.models: an empty name")
		}
	}
	for _, name := range sortedKeys(e.Headers) {
		value := e.Headers[name].Reveal()
		if !validHeaderName(name) || strings.ContainsAny(value, "\r\n\x00") {
			p.addf(at("headers."+name), "", "engine.headers: %q cannot be sent as a header", clip(name))
		} else if slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection", "authorization"}, strings.ToLower(name)) {
			p.addf(at("headers."+name), "authorization is set by api_key, the others by the proxy", "engine.headers: %q is not for the file", clip(name))
		}
		secret := e.Headers[name]
		c.expandSecret(at("headers."+name), &secret, p)
		e.Headers[name] = secret
	}
	if e.APIKey.Reveal() != "" && e.APIKeyEnv != "" {
		p.addf(at("api_key_env"), "keep api_key_env: the file then has no secret", "engine has both api_key and api_key_env")
	}
	c.expandSecret(at("api_key"), &e.APIKey, p)
	if e.APIKeyEnv != "" {
		key, err := fromEnvironment(e.APIKeyEnv, c.lookup)
		if err != nil {
			p.addError(at("api_key_env"), err)
		} else {
			e.APIKey = key
		}
	}
	if strings.ContainsAny(e.APIKey.Reveal(), "\r\n\x00") {
		p.addf(at("api_key"), "", "engine.api_key has a line break in it")
	}
}

func (c *Config) expandSecret(path string, s *Secret, p *problems) {
	value, err := s.expand(c.lookup)
	if err != nil {
		p.addError(path, err)
		return
	}
	*s = value
}

func oneOf(path, value string, allowed []string, p *problems) {
	if slices.Contains(allowed, value) {
		return
	}
	hint := "one of " + strings.Join(allowed, ", ")
	if near := nearest(value, allowed); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	p.addf(path, hint, "%s: unknown value %q", shown(path), clip(value))
}

func within[T interface {
	~int | ~int64
}](path string, value, low, high T, p *problems) {
	if value < low || value > high {
		p.addf(path, "", "%s must be between %v and %v, not %v", shown(path), low, high, value)
	}
}

func checkAddress(path, address string, required bool, p *problems) {
	if address == "" {
		if required {
			p.addf(path, `write "host:port"`, "%s must not be empty", shown(path))
		}
		return
	}
	const hint = `write "host:port", ":port" for all addresses, "[::1]:port" for IPv6`
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.addf(path, hint, "%s: %q is not an address with a port", shown(path), clip(address))
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && required && path != "listen" {
		p.addf(path, hint, "%s: %q is not a port", shown(path), clip(port))
	}
	if strings.ContainsAny(host, " /\"'") {
		p.addf(path, hint, "%s: %q is not a host", shown(path), clip(host))
	}
}

// sameAddress tells whether two listen addresses collide; port 0 never does, since the system picks.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	all := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return hostA == hostB || all(hostA) || all(hostB)
}

func validName(name string) bool {
	if len(name) > 128 {
		return false
	}
	for i := range len(name) {
		b := name[i]
		if !(b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || strings.IndexByte("._:-[]", b) >= 0) {
			return false
		}
	}
	return true
}

func validHeaderName(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if b := name[i]; !(b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0) {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
