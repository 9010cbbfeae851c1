package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The library would pick an address for us, with errors that do not say what to do about them.

// errNoAddress says how to help.
var errNoAddress = errors.New(`no address that others could reach was found; write cluster.advertise = "host:port"`)

// bindAddress resolves the address to open. An empty host is all addresses.
func bindAddress(bind string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(bind)
	if err != nil {
		return "", 0, fmt.Errorf("cluster bind %q: %w", bind, err)
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("cluster bind %q: %q is not a port", bind, service)
	}
	if host == "" {
		return "::", int(n), nil
	}
	ip, err := resolveOne(host)
	if err != nil {
		return "", 0, fmt.Errorf("cluster bind %q: %w", bind, err)
	}
	return ip.String(), int(n), nil
}

// advertiseAddress finds the address to tell others. bound is the resolved host and port that is open.
func advertiseAddress(advertise, iface, bound string, port int) (netip.Addr, int, error) {
	if advertise != "" {
		host, service, err := net.SplitHostPort(advertise)
		if err != nil {
			host = strings.Trim(advertise, "[]") // without a port: the bound one
		} else if service != "" {
			n, err := strconv.ParseUint(service, 10, 16)
			if err != nil || n == 0 {
				return netip.Addr{}, 0, fmt.Errorf("cluster advertise %q: %q is not a port", advertise, service)
			}
			port = int(n)
		}
		ip, err := resolveOne(host)
		if err != nil {
			return netip.Addr{}, 0, fmt.Errorf("cluster advertise %q: %w", advertise, err)
		}
		return ip, port, nil
	}
	ip, err := netip.ParseAddr(bound)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("cluster bind %q: %w", bound, err)
	}
	if ip = ip.Unmap(); !ip.IsUnspecified() {
		return ip, port, onInterface(iface, ip)
	}
	ip, err = ownAddress(iface, ip.Is4())
	return ip, port, err
}

// onInterface tells whether the one address that is open is an interface's, if one is named: at another of its addresses nobody listens.
func onInterface(iface string, bound netip.Addr) error {
	if iface == "" {
		return nil
	}
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %q: %w", iface, err)
	}
	addresses, err := i.Addrs()
	if err != nil {
		return fmt.Errorf("list addresses of interface %q: %w", iface, err)
	}
	var has []string
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		if prefix.Contains(bound) && (prefix.Addr().Unmap() == bound || bound.IsLoopback()) {
			return nil // all of 127.0.0.0/8 is the loopback interface's
		}
		has = append(has, prefix.Addr().Unmap().String())
	}
	return fmt.Errorf("interface %q has %s, but cluster.bind opens %s alone: nobody would listen at what others are told; bind all addresses (0.0.0.0) or one of these, or leave interface out",
		iface, strings.Join(has, ", "), bound)
}

// ownAddress picks an address of an interface, or of any: a private one before a public one, IPv4 before IPv6.
func ownAddress(iface string, only4 bool) (netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list network interfaces: %w", err)
	}
	var best netip.Addr
	found, names := 0, []string{}
	for _, i := range interfaces {
		names = append(names, i.Name)
		if iface != "" && i.Name != iface || i.Flags&net.FlagUp == 0 || iface == "" && i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			ip := prefix.Addr().Unmap()
			if ip.IsLinkLocalUnicast() || ip.IsMulticast() || only4 && !ip.Is4() {
				continue
			}
			rank := 1
			if ip.IsPrivate() {
				rank += 2
			}
			if ip.Is4() {
				rank++
			}
			if rank > found {
				best, found = ip, rank
			}
		}
	}
	switch {
	case found > 0:
		return best, nil
	case iface != "":
		return netip.Addr{}, fmt.Errorf("interface %q has no usable address (there are %s): %w", iface, strings.Join(names, ", "), errNoAddress)
	}
	return netip.Addr{}, errNoAddress
}

func resolveOne(host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, ip := range list {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return list[0], nil
}
