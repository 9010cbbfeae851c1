package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/warmring/warmring/config"
)

// What the machine lacks is told of the right key, before anybody is told that the proxy serves.
func TestAClusterThatCannotBeOpenedNamesItsKey(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := fmt.Sprintf("bind = \"127.0.0.1:%d\"\n", freePort(t))
	for want, lines := range map[string]string{
		"test.toml:5:1: cluster.interface":            free + "interface = \"none9\"\n",
		"test.toml:5:1: cluster.advertise":            free + "advertise = \"no-such-host.invalid\"\n",
		"test.toml:4:1: cluster.bind":                 fmt.Sprintf("bind = %q\n", taken.Addr()),
		"test.toml:4:1: cluster.bind: open cluster p": "bind = \"203.0.113.1:7946\"\n",
	} {
		cfg, err := config.Parse("test.toml", []byte("[[engine]]\nurl = \"http://127.0.0.1:1\"\n[cluster]\n"+lines))
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.OpenCluster(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}
