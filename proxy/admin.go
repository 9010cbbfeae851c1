package proxy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
	"github.com/warmring/warmring/ring"
)

//go:embed page.html
var page []byte

// newAdmin makes the operators' listener. It has no login: it belongs on loopback
// or behind something that has one.
func (s *Server) newAdmin() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: s.handleAdmin, NoDefaultServerHeader: true, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxRequestBodySize: 64 << 10,
		CloseOnShutdown: true, Logger: discardLogger{},
	}
}

func (s *Server) handleAdmin(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	post := ctx.IsPost()
	if name, action, ok := engineAction(path); ok {
		if !post {
			ctx.Response.Header.Set("Allow", "POST")
			adminError(ctx, fasthttp.StatusMethodNotAllowed, "use POST to "+action)
			return
		}
		s.steer(ctx, name, action)
		return
	}
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.Response.Header.Set("Allow", "GET")
		adminError(ctx, fasthttp.StatusMethodNotAllowed, "only GET is answered here")
		return
	}
	switch {
	case path == "/":
		ctx.SetContentType("text/html; charset=utf-8")
		ctx.SetBody(page)
	case path == "/healthz":
		ctx.SetContentType("text/plain; charset=utf-8")
		ctx.SetBodyString("ok\n")
	case path == "/readyz":
		s.ready(ctx)
	case path == "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
		s.metrics.write(s, ctx)
	case path == "/api/engines":
		adminJSON(ctx, s.engineViews())
	case path == "/api/sessions":
		limit, err := ctx.QueryArgs().GetUint("limit")
		if err != nil || limit > 10_000 {
			limit = 200
		}
		adminJSON(ctx, s.sessionViews(limit))
	case strings.HasPrefix(path, "/api/sessions/"):
		s.oneSession(ctx, strings.TrimPrefix(path, "/api/sessions/"))
	case path == "/api/ring":
		adminJSON(ctx, map[string]any{"engines": s.placer.Snapshot(), "totals": s.placer.Gauges()})
	case strings.HasPrefix(path, "/api/explain/"):
		id, _ := url.PathUnescape(strings.TrimPrefix(path, "/api/explain/"))
		if x, ok := s.recent.explain(id); ok {
			adminJSON(ctx, x)
			return
		}
		adminError(ctx, fasthttp.StatusNotFound, fmt.Sprintf("no finished request %.140q among the last %d", id, maxRecent))
	case path == "/api/lanes":
		adminJSON(ctx, s.lanesViews())
	case path == "/api/cluster":
		adminJSON(ctx, s.clusterView())
	case path == "/api/config":
		adminJSON(ctx, s.configView())
	case strings.HasPrefix(path, "/debug/pprof"):
		pprofhandler.PprofHandler(ctx)
	default:
		adminError(ctx, fasthttp.StatusNotFound, "there is /healthz /readyz /metrics /api/engines /api/sessions /api/sessions/{id} /api/ring /api/lanes /api/explain/{request-id} /api/cluster /api/config /debug/pprof/ and the page at /")
	}
}

// ready is the readiness that balancers ask for: this proxy takes work and has an
// engine to give it to.
func (s *Server) ready(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain; charset=utf-8")
	usable, all := 0, s.fleet.Engines()
	for _, e := range all {
		if st := e.State(); st == engines.Ready || st == engines.Busy {
			usable++
		}
	}
	switch {
	case s.draining.Load():
		ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
		ctx.SetBodyString("draining\n")
	case !s.settled.Load():
		ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
		ctx.SetBodyString("asking the engines\n")
	case s.joining():
		ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
		ctx.SetBodyString("joining the other proxies\n")
	case usable == 0:
		ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
		fmt.Fprintf(ctx, "none of %d engines is usable\n", len(all))
	default:
		fmt.Fprintf(ctx, "ready: %d of %d engines usable\n", usable, len(all))
	}
}

// engineView joins what is known of an engine by asking it and by placing work.
type engineView struct {
	Name        string           `json:"name"`
	URL         string           `json:"url"`
	Kind        engines.Kind     `json:"kind"`
	State       string           `json:"state"`
	Reason      string           `json:"state_reason,omitempty"`
	Models      []string         `json:"models"`
	Connections int64            `json:"connections"`
	Dials       uint64           `json:"dials"`
	Stale       uint64           `json:"stale_connections"`
	Reported    reported         `json:"reported"`
	Lanes       lane.View        `json:"lanes"`
	Placement   *ring.EngineView `json:"placement,omitempty"`
}

func (s *Server) engineView(up *upstream, state, reason string, placed *ring.EngineView) engineView {
	v := engineView{
		Name: up.Name, URL: up.Target.String(), Kind: up.DetectedKind(), State: state, Reason: reason, Models: []string{}, Connections: up.pool.Open(),
		Dials: up.pool.Dials.Load(), Stale: up.pool.Stale.Load(), Reported: s.reported(up.Engine), Lanes: up.lanes.view(), Placement: placed,
	}
	for _, m := range up.Models() {
		v.Models = append(v.Models, m.ID)
	}
	return v
}

func (s *Server) engineViews() []engineView {
	placed := make(map[string]*ring.EngineView)
	snapshot := s.placer.Snapshot()
	for i := range snapshot {
		placed[snapshot[i].Name] = &snapshot[i]
	}
	var views []engineView
	for name, up := range s.upstreams() {
		views = append(views, s.engineView(up, up.State().String(), up.Reason(), placed[name]))
	}
	for _, up := range s.leaving.all() {
		views = append(views, s.engineView(up, "removed", "taken out by a reload: it ends what it runs", nil))
	}
	sort.SliceStable(views, func(i, j int) bool { return views[i].Name < views[j].Name })
	return views
}

func (s *Server) oneSession(ctx *fasthttp.RequestCtx, id string) {
	key, err := strconv.ParseUint(id, 16, 64)
	if err != nil || len(id) != 16 {
		adminError(ctx, fasthttp.StatusBadRequest, "a session id is the 16 hex digits of x-warmring-session")
		return
	}
	view, ok := s.placer.Session(key)
	if !ok {
		adminError(ctx, fasthttp.StatusNotFound, "session "+id+" is not known: it never was here or has been idle for too long")
		return
	}
	adminJSON(ctx, s.sessionView(view))
}

// sessionView is a session as operators see it: ids as in the headers, times as
// ages.
type sessionView struct {
	Session string  `json:"session"`
	Parent  string  `json:"parent,omitempty"`
	Idle    float64 `json:"idle_seconds"`
	ring.SessionView
}

func (s *Server) sessionView(v ring.SessionView) sessionView {
	out := sessionView{Session: v.Key.String(), Idle: float64((s.now()-v.Seen)/1e6) / 1e3, SessionView: v}
	if v.Parent != 0 {
		out.Parent = v.Parent.String()
	}
	return out
}

func (s *Server) sessionViews(limit int) []sessionView {
	views := []sessionView{}
	for _, v := range s.placer.Sessions(limit) {
		views = append(views, s.sessionView(v))
	}
	return views
}

// engineAction reads /api/engines/{name}/drain and /undrain.
func engineAction(path string) (name, action string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/api/engines/")
	if !ok {
		return "", "", false
	}
	i := strings.LastIndexByte(rest, '/')
	if i <= 0 {
		return "", "", false
	}
	name, action = rest[:i], rest[i+1:]
	return name, action, action == "drain" || action == "undrain"
}

func (s *Server) steer(ctx *fasthttp.RequestCtx, name, action string) {
	var err error
	if action == "drain" {
		err = s.fleet.Drain(name)
	} else {
		err = s.fleet.Undrain(name)
	}
	if err != nil {
		adminError(ctx, fasthttp.StatusNotFound, err.Error())
		return
	}
	if c := s.cluster.Load(); c != nil {
		c.Drain(name, action == "drain")
	}
	s.log.Info("engine steered by an operator", "engine", name, "action", action)
	adminJSON(ctx, map[string]string{"engine": name, "action": action, "state": s.fleet.ByName(name).State().String()})
}

func adminJSON(ctx *fasthttp.RequestCtx, v any) {
	ctx.SetContentType("application/json")
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		adminError(ctx, fasthttp.StatusInternalServerError, err.Error())
		return
	}
	ctx.SetBody(append(body, '\n'))
}

func adminError(ctx *fasthttp.RequestCtx, status int, message string) {
	ctx.Response.Header.SetContentType("application/json")
	ctx.SetStatusCode(status)
	body, _ := json.Marshal(map[string]string{"error": message})
	ctx.SetBody(append(body, '\n'))
}
