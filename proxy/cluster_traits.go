package proxy

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/warmring/warmring/ring/gossip"
)

// traits are what the proxies of a cluster compare of their configurations.
func (s *Server) traits() gossip.Traits {
	set := s.settings.Load()
	var weights, models, urls, places []string
	for _, e := range s.fleet.Engines() {
		url := e.Target.String()
		weights = append(weights, fmt.Sprint(e.Name, " ", e.Weight))
		models = append(models, fmt.Sprintf("%s %q", e.Name, slices.Sorted(slices.Values(e.Spec.Models))))
		urls, places = append(urls, url), append(places, e.Name+" "+url)
	}
	for name, target := range set.Models.Alias {
		models = append(models, fmt.Sprintf("alias %q %q", name, target))
	}
	return gossip.Traits{
		Settings: s.settingsHash(), Secret: s.secretPrint, Weights: hashOf(weights), Models: hashOf(models), URLs: hashOf(urls), Places: hashOf(places),
	}
}

// settingsHash is the same for proxies that agree on every key and home. The secret takes part only where the wire is encrypted: who
// listens could try secrets against it.
func (s *Server) settingsHash() uint32 {
	h := fnv.New32a()
	fmt.Fprintln(h, s.cfg.Routing.VirtualNodes, identitySources(s.settings.Load().Config))
	if len(s.cfg.Cluster.Keys) > 0 {
		fmt.Fprintln(h, s.tenantSecret)
	}
	return h.Sum32()
}

// printSecret is what is compared of the secret where the wire is open to everybody: eight bits of a slow hash. Of two secrets that
// differ one pair in 256 is not seen; a guess cannot be confirmed with it, as one in 256 wrong ones has the same.
func printSecret(secret string) uint32 {
	if secret == "" {
		return 1 << 8
	}
	key, err := pbkdf2.Key(sha256.New, secret, []byte("warmring identity.secret"), 100_000, 1)
	if err != nil {
		return 0 // not compared: a length that is not allowed
	}
	return 1<<9 | uint32(key[0])
}

// hashOf is the same for the same strings in any order; never 0.
func hashOf(list []string) uint32 {
	h := fnv.New32a()
	slices.Sort(list)
	fmt.Fprintln(h, strings.Join(list, "\x00"))
	return max(h.Sum32(), 1)
}
