package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/proxy"
)

// stage is a fleet with a proxy in front of it.
type stage struct {
	*fleet
	url, admin string
	stop       context.CancelFunc
	ended      chan error
}

// startProxy serves until close and waits until the proxy knows all engines of the fleet, which it takes over.
func startProxy(ctx context.Context, f *fleet) (*stage, error) {
	cfg, err := config.Parse("demo", []byte(f.file()))
	if err != nil {
		return nil, err
	}
	srv, err := proxy.New(cfg, proxy.Options{Version: "demo"})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	adminLn, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("listen for the admin page: %w", err)
	}
	serving, stop := context.WithCancel(context.Background())
	s := &stage{fleet: f, url: "http://" + ln.Addr().String(), admin: "http://" + adminLn.Addr().String(), stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- srv.Serve(serving, ln, adminLn) }()
	if err := s.ready(ctx); err != nil {
		// What the proxy itself says about its end tells more than that it does not answer.
		return nil, cmp.Or(s.stopProxy(), err)
	}
	return s, nil
}

// file is the configuration that a person would write for the fleet, but that nobody waits for the proxy's end.
func (f *fleet) file() string {
	var b strings.Builder
	b.WriteString(f.settings)
	fmt.Fprintf(&b, "[drain]\ndelay = \"0s\"\nlimit = %q\n", cmp.Or(f.drain, "2s"))
	for i, s := range f.servers {
		fmt.Fprintf(&b, "[[engine]]\nname = %q\nurl = %q\n", f.names[i], s.URL())
	}
	return b.String()
}

func (s *stage) stopProxy() error {
	s.stop()
	if err := <-s.ended; err != nil {
		return fmt.Errorf("the proxy: %w", err)
	}
	return nil
}

func (s *stage) close() error {
	defer s.fleet.close()
	return s.stopProxy()
}

// ready waits until the proxy has found out what its engines are.
func (s *stage) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		body, err := s.ask(ctx, "/api/engines")
		if err != nil {
			return err
		}
		var engines []struct{ Name, State, Kind string }
		if err := json.Unmarshal(body, &engines); err != nil {
			return fmt.Errorf("read /api/engines: %w", err)
		}
		for _, e := range engines {
			if e.State != "ready" || e.Kind == "" {
				return fmt.Errorf("engine %q is %s", e.Name, e.State)
			}
		}
		return nil
	})
}

// poll asks again and again until the answer is nil or ctx ends, then gives the last answer.
func poll(ctx context.Context, question func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := question()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return err
		case <-tick.C:
		}
	}
}

func (s *stage) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy for %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("read the proxy's %s: %w", path, err)
	}
	return body, nil
}

// gauges are the ones that tell of work under way: when nothing is, each must be 0.
var gauges = []string{
	"warmring_inflight_requests", "warmring_waiting_requests", "warmring_charged_fresh_tokens",
	"warmring_running_prefills", "warmring_running_decodes", "warmring_held_context_tokens",
}

// idle tells what the proxy still holds against an engine; nil when nothing. It gives the last answers a moment to end.
func (s *stage) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		page, err := s.ask(ctx, "/metrics")
		if err != nil {
			return err
		}
		return busy(string(page))
	})
}

// busy reads a metrics page and names the gauges that are missing or not 0.
func busy(page string) error {
	var problems []error
	missing := slices.Clone(gauges)
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		at := slices.Index(missing, name)
		if at < 0 {
			continue
		}
		missing = slices.Delete(missing, at, at+1)
		if v, err := strconv.ParseFloat(value, 64); err != nil || v != 0 {
			problems = append(problems, fmt.Errorf("%s is %s", name, value))
		}
	}
	for _, name := range missing {
		problems = append(problems, fmt.Errorf("%s is not there", name))
	}
	return errors.Join(problems...)
}

// route sends everything to the proxy, which says in each answer whom it chose.
func (s *stage) route() route {
	return route{
		next:   func() (string, int) { return s.url, -1 },
		engine: func(name string) int { return slices.Index(s.names, name) },
	}
}

// invitation is what -keep prints.
func (s *stage) invitation() string {
	return fmt.Sprintf(`
Proxy and engines go on until Ctrl-C. The page of the proxy:

    %s/

A request to try; send it twice and look at the x-warmring headers:

    curl -si %s/v1/chat/completions -H 'content-type: application/json' \
      -H 'x-session-id: me' \
      -d '{"model":"%s","messages":[{"role":"user","content":"Hello, engine"}]}'
`, s.admin, s.url, modelName)
}
