package gossip

import (
	"fmt"
	"log"
	"time"

	"github.com/hashicorp/memberlist"
)

// open makes the sockets and the member list.
func (c *Cluster) open() error {
	host, port, err := bindAddress(c.opt.Bind)
	if err != nil {
		return of("bind", err)
	}
	logger := log.New(c.library, "", 0)
	transport, bound, err := openTransport(host, port, logger)
	if err != nil {
		return of("bind", err)
	}
	port = transport.GetAutoBindPort()
	address, advertised, err := advertiseAddress(c.opt.Advertise, c.opt.Interface, bound, port)
	if err != nil {
		_ = transport.Shutdown()
		switch {
		case c.opt.Advertise != "":
			return of("advertise", err)
		case c.opt.Interface != "":
			return of("interface", err)
		}
		return of("bind", err)
	}
	var network memberlist.NodeAwareTransport = transport
	if c.opt.Transport != nil {
		network = c.opt.Transport(network)
	}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = c.name
	cfg.Label = c.opt.Cluster
	cfg.Transport = newGuard(network, cfg.Label, len(c.opt.Keys) > 0, &c.traffic)
	cfg.BindAddr, cfg.BindPort = bound, port
	cfg.AdvertiseAddr, cfg.AdvertisePort = address.String(), advertised
	cfg.Logger = logger
	cfg.Delegate, cfg.Events = (*delegate)(c), (*events)(c)
	cfg.Ping = (*pings)(c)
	cfg.TCPTimeout = 2 * time.Second // as long as a stream to a dead member blocks
	cfg.GossipInterval, cfg.GossipNodes = 50*time.Millisecond, 4
	cfg.ProbeInterval, cfg.ProbeTimeout, cfg.SuspicionMult = c.opt.Probe, c.opt.Probe*2/5, 3
	cfg.PushPullInterval = c.opt.Sync
	cfg.EnableCompression = false // what we send is dense
	if len(c.opt.Keys) > 0 {
		if c.keyring, err = memberlist.NewKeyring(c.opt.Keys, c.opt.Keys[0]); err != nil {
			_ = cfg.Transport.Shutdown()
			return of("keys", fmt.Errorf("cluster keys: %w", err))
		}
		cfg.Keyring = c.keyring
	}
	if c.list, err = memberlist.Create(cfg); err != nil {
		_ = cfg.Transport.Shutdown()
		return of("bind", fmt.Errorf("open cluster on %q: %w", c.opt.Bind, err))
	}
	return nil
}

// openTransport opens UDP and TCP on the same port. Where all addresses are asked for and the host has no IPv6, those of IPv4.
func openTransport(host string, port int, logger *log.Logger) (*memberlist.NetTransport, string, error) {
	var last error
	for range 10 { // a free TCP port may be taken for UDP
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger})
		if err == nil {
			return t, host, nil
		}
		last = err
		if host == "::" {
			if t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{"0.0.0.0"}, BindPort: port, Logger: logger}); err == nil {
				return t, "0.0.0.0", nil
			}
		}
		if port != 0 {
			break
		}
	}
	return nil, "", fmt.Errorf("open cluster port %d on %q: %w", port, host, last)
}
