package config

import (
	"crypto/sha256"
	hexadecimal "encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/warmring/warmring/engines"
)

// SmallestFile is the shortest file that works. It is shown wherever there is none.
const SmallestFile = `listen = "127.0.0.1:8080"

[[engine]]
url = "http://127.0.0.1:8000"
`

const (
	maxFileBytes = 1 << 20 // a file beyond this is not a configuration
	maxEngines   = 4096    // the placement is measured up to here
)

// Config is everything that the proxy can be told. Each section is its own type, with one comment per field: meaning, unit, default, what goes wrong when it is too big or too small. Keys marked
// reload:"live" can change while the proxy runs, all others need a restart; see ChangesFrom.
type Config struct {
	// Listen is the address clients talk to, "host:port"; an empty host means all addresses, IPv4 and IPv6. Default "127.0.0.1:8080": reachable from this machine alone, so that nobody exposes
	// a fleet without having said so.
	Listen string `toml:"listen"`

	Admin     Admin     `toml:"admin"`
	Engines   []Engine  `toml:"engine" reload:"live"`
	Server    Server    `toml:"server"`
	Drain     Drain     `toml:"drain" reload:"live"`
	Timeouts  Timeouts  `toml:"timeouts" reload:"live"`
	Retry     Retry     `toml:"retry" reload:"live"`
	Probe     Probe     `toml:"probe" reload:"live"`
	Routing   Routing   `toml:"routing"`
	Identity  Identity  `toml:"identity"`
	Headers   Headers   `toml:"headers" reload:"live"`
	Models    Models    `toml:"models" reload:"live"`
	Paths     Paths     `toml:"paths" reload:"live"`
	Keepalive Keepalive `toml:"keepalive" reload:"live"`
	Lanes     Lanes     `toml:"lanes" reload:"live"`
	Log       Log       `toml:"log" reload:"live"`
	Cluster   Cluster   `toml:"cluster"`
	source    *source   // where each key stands; nil for a Config that was not read from a file
	lookup    func(string) (string, bool)
}

// Default returns the configuration of an empty file. It has no engine, so it does not pass as the configuration of a proxy until one is added.
func Default() *Config {
	return &Config{
		Listen:    "127.0.0.1:8080",
		Admin:     defaultAdmin(),
		Server:    defaultServer(),
		Drain:     defaultDrain(),
		Timeouts:  defaultTimeouts(),
		Retry:     defaultRetry(),
		Probe:     defaultProbe(),
		Routing:   defaultRouting(),
		Identity:  Identity{},
		Headers:   defaultHeaders(),
		Models:    Models{},
		Paths:     Paths{},
		Keepalive: Keepalive{},
		Lanes:     defaultLanes(),
		Log:       defaultLog(),
		Cluster:   defaultCluster(),
		lookup:    os.LookupEnv,
	}
}

// Load reads and validates the file at path. A missing file is an error that shows the smallest one that works.
func Load(path string) (*Config, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration at %q; the smallest file that works:\n\n%s", path, SmallestFile)
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("read configuration %q: this is a folder; name the file in it", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("read configuration %q: %d bytes are more than a configuration may have (%d)", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse validates data; name is used in errors only. The error is an *Error that holds every problem found.
func Parse(name string, data []byte) (*Config, error) {
	return parse(name, data, os.LookupEnv)
}

func parse(name string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("read configuration %q: %d bytes are more than a configuration may have (%d)", name, len(data), maxFileBytes)
	}
	src, tree, err := readSource(name, data)
	if err != nil {
		return nil, err
	}
	c := Default()
	c.source, c.lookup = src, lookup
	src.digest = sha256.Sum256(data)
	problems := &problems{source: src}
	decode(c, tree, problems)
	c.validate(problems)
	if err := problems.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Digest is the SHA-256 of the file's bytes in hex, as sha256sum prints it; "" for a Config that was not read from a file.
func (c *Config) Digest() string {
	if c.source == nil {
		return ""
	}
	return hexadecimal.EncodeToString(c.source.digest[:])
}

// File is the name under which the file was read; "" for a Config that was not read from one.
func (c *Config) File() string {
	if c.source == nil {
		return ""
	}
	return c.source.name
}

// At gives err the position of a key, written as "section.key" or "engine.1.url" (engines count from 0), for checks that other packages make on values of this file.
func (c *Config) At(key string, err error) error {
	if err == nil {
		return nil
	}
	if c.source == nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	p := &problems{source: c.source}
	p.addError(key, err)
	return p.err()
}

// Warnings lists what is allowed but probably not meant, one sentence each, for the log at start-up and for the check command.
func (c *Config) Warnings() []string {
	var out []string
	out = append(out, c.Cluster.warnings()...)
	if c.Cluster.Bind != "" && c.Identity.Secret.Reveal() == "" {
		out = append(out, "[cluster] without identity.secret: the keys of sessions that proxies tell each other can be computed by who knows the session ids")
	}
	if c.Timeouts.FirstByte > 0 {
		out = append(out, fmt.Sprintf("timeouts.first_byte = %q ends every prefill that takes longer, and the work done for it is lost", c.Timeouts.FirstByte))
	}
	for i := range c.Engines {
		if c.Engines[i].TLS.SkipVerify {
			out = append(out, fmt.Sprintf("engine %q: tls.skip_verify is on, whoever answers at its address gets the prompts and the key", c.Engines[i].Name))
		}
	}
	for _, p := range c.Paths.Allow {
		if p == "*" {
			out = append(out, `paths.allow = ["*"] lets every client flush caches, abort other people's requests and read metrics`)
		}
	}
	return out
}

// Specs returns the engines in the words of package engines.
func (c *Config) Specs() []engines.Spec {
	specs := make([]engines.Spec, len(c.Engines))
	for i := range c.Engines {
		specs[i] = c.Engines[i].Spec()
	}
	return specs
}

// FleetOptions returns what the file says about watching engines; the caller adds logger and listener.
func (c *Config) FleetOptions() engines.FleetOptions {
	return engines.FleetOptions{
		ProbeInterval: c.Probe.Interval.Std(), ProbeTimeout: c.Probe.Timeout.Std(), ConnectTimeout: c.Timeouts.Connect.Std(), Aliases: c.Models.Alias,
	}
}
