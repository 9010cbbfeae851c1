package config

import (
	"encoding/base64"
	hexadecimal "encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Cluster is the gossip between proxies. Without the table nothing is opened; with it, bind is required.
type Cluster struct {
	// Bind is the address to gossip on, "host:port", for UDP and TCP. Default "": alone. "0.0.0.0:7946" or ":7946" is all addresses.
	Bind string `toml:"bind"`

	// Advertise is what others reach this proxy at, "host" or "host:port". Default: the bound address, or a private one of this
	// machine where all are bound. Needed behind address translation; a wrong one makes the proxy come and go.
	Advertise string `toml:"advertise"`

	// Interface names the network interface whose address is told to others, where there are several. Default "": any.
	Interface string `toml:"interface"`

	// Join are addresses of other proxies; names may have many addresses and are looked up again every rejoin. Own addresses are
	// left out, so that all proxies can have the same list. Default none: others join this one.
	Join []string `toml:"join"`

	// Name is what the proxies of one cluster have in common. Default "warmring". Two clusters that can reach each other need
	// different ones, or they become one.
	Name string `toml:"name"`

	// Node begins this proxy's name among the others; each start adds a suffix. Default "": the host's name.
	Node string `toml:"node"`

	// Keys encrypt what goes between proxies: 16, 24 or 32 random bytes in base64 or hex; "${NAME}" is replaced by that
	// environment variable. The first encrypts, all decrypt. Default none: whoever reaches the port can place sessions. To change
	// the key without a gap: add the new one behind, then put it first, then drop the old one, each time on all proxies.
	Keys []Secret `toml:"keys" reload:"live"`

	// Rejoin is how often the names in join are looked up to find proxies that are missing. Default 30s. Longer heals a split later.
	Rejoin Duration `toml:"rejoin"`

	// Sync is how often this proxy compares what it knows with another one. Default 10s. Longer leaves gaps for longer after lost packets; shorter costs 2 KB each time.
	Sync Duration `toml:"sync"`

	// Probe is how often this proxy probes another one. Default 500ms; a dead proxy is known after about five times that. Networks with long delays need more.
	Probe Duration `toml:"probe"`

	// ReadyLimit is how long a starting proxy waits for the state of the others before it counts as ready without. Default 10s.
	// Too small: after a rollout, sessions that moved are placed anew.
	ReadyLimit Duration `toml:"ready_limit"`

	// Budget bounds what this proxy sends to others, in bytes per second. Default 30KB. What does not fit is left out, the
	// least worthy first: then proxies agree by the ring alone.
	Budget Size `toml:"budget"`
}

func defaultCluster() Cluster {
	return Cluster{
		Name: "warmring", Rejoin: Duration(30 * time.Second), Sync: Duration(10 * time.Second), Probe: Duration(500 * time.Millisecond),
		ReadyLimit: Duration(10 * time.Second), Budget: 30 << 10,
	}
}

const maxClusterKeys = 8

func (c *Config) validateCluster(p *problems) {
	k := &c.Cluster
	if k.Bind != "" {
		checkAddress("cluster.bind", k.Bind, true, p)
	}
	if k.Advertise != "" && !validAdvertise(k.Advertise) {
		p.addf("cluster.advertise", `write "host" or "host:port", "[::1]:port" for IPv6`, "cluster.advertise: %q is not an address that others can reach", clip(k.Advertise))
	}
	for i, peer := range k.Join {
		at := fmt.Sprintf("cluster.join.%d", i)
		if checkAddress(at, peer, true, p); strings.HasPrefix(peer, ":") {
			p.addf(at, `write "name:port"`, "cluster.join: %q has no host", clip(peer))
		}
	}
	// The table is optional, but one without bind would open nothing and say nothing: whoever wrote it wants a cluster. And a port that
	// others can reach is not opened by default.
	if k.Bind == "" && (len(k.Join) > 0 || len(k.Keys) > 0 || k.Advertise != "" || p.source != nil && p.source.has("cluster")) {
		p.addf("cluster", `add bind = "0.0.0.0:7946", or leave [cluster] out for one proxy alone`, "[cluster] needs bind")
	}
	if k.Name == "" || !validName(k.Name) {
		p.addf("cluster.name", "letters, digits and . _ : - [ ], at most 128", "cluster.name %q is empty, has other characters or is too long", clip(k.Name))
	}
	if k.Node != "" && !validName(k.Node) {
		p.addf("cluster.node", "letters, digits and . _ : - [ ], at most 128", "cluster.node %q has other characters or is too long", clip(k.Node))
	}
	if len(k.Keys) > maxClusterKeys {
		p.addf("cluster.keys", "two are enough to change the key", "cluster.keys: %d are more than %d", len(k.Keys), maxClusterKeys)
	}
	first := map[string]int{}
	for i := range k.Keys {
		// Faults are told at the key of the array: a line of its own might show the secret.
		value, err := k.Keys[i].expand(c.lookup)
		if err == nil {
			k.Keys[i] = value
			var key []byte
			if key, err = clusterKey(value.Reveal()); err == nil {
				if before, twice := first[string(key)]; twice {
					err = fmt.Errorf("the same as number %d: leave one of them out", before)
				} else {
					first[string(key)] = i + 1
				}
			}
		}
		if err != nil {
			p.addError("cluster.keys", fmt.Errorf("number %d: %w", i+1, err))
		}
	}
	within("cluster.rejoin", k.Rejoin, Duration(time.Second), Duration(time.Hour), p)
	within("cluster.sync", k.Sync, Duration(time.Second), Duration(10*time.Minute), p)
	within("cluster.probe", k.Probe, Duration(100*time.Millisecond), Duration(30*time.Second), p)
	within("cluster.ready_limit", k.ReadyLimit, 0, Duration(10*time.Minute), p)
	within("cluster.budget", k.Budget, 4<<10, 100<<20, p)
}

func validAdvertise(s string) bool {
	if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return !ip.IsUnspecified()
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return !strings.ContainsAny(s, ":[] /")
	}
	ip, err := netip.ParseAddr(host)
	return host != "" && port != "" && port != "0" && !strings.ContainsAny(host, " /") && (err != nil || !ip.IsUnspecified())
}

// clusterKey decodes a key.
func clusterKey(text string) ([]byte, error) {
	for _, decode := range [...]func(string) ([]byte, error){
		hexadecimal.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if key, err := decode(text); err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, fmt.Errorf("not 16, 24 or 32 bytes in base64 or hex; \"openssl rand -base64 32\" makes one")
}

// AESKeys are the keys as bytes.
func (k *Cluster) AESKeys() [][]byte {
	var keys [][]byte
	for _, text := range k.Keys {
		if key, err := clusterKey(text.Reveal()); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// exposed tells whether others than this machine can reach the gossip port.
func (k *Cluster) exposed() bool {
	host, _, err := net.SplitHostPort(k.Bind)
	if err != nil || host == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.IsLoopback()
}

func (k *Cluster) warnings() (out []string) {
	if k.Bind != "" && len(k.Keys) == 0 && k.exposed() {
		out = append(out, fmt.Sprintf("cluster.bind = %q has no cluster.keys: whoever reaches this port can place sessions and drain engines, and can read what proxies tell each other (hashes, no text)", k.Bind))
	}
	return out
}
