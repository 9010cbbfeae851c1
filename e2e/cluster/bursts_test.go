package cluster

import (
	"fmt"
	"testing"
)

// All sessions fork at the same moment (C098). The engines are so fast that a queue of some turns is worth leaving a parent's engine for: how
// many do, with one proxy and with three, is for the eye; with three it should not be more by one in a hundred.
func TestForksThatComeAtOnce(t *testing.T) {
	cold := map[int]float64{}
	for _, proxies := range []int{1, 3} {
		f := newFleet(t, proxies, 4)
		sum, astray := int64(0), int64(0)
		for _, k := range []kin{nameless, named, child} {
			c := f.crowd(64, k != nameless)
			c.heard("parents of forks "+k.String(), 2)
			for range 3 {
				forks := c.forked1(k)
				forks.round()
				got := forks.tell(fmt.Sprintf("%d proxies, forks %s, all at once", proxies, k))
				sum, astray = sum+got.forked, astray+got.astray
				if got.errors > 0 {
					t.Errorf("%d errors", got.errors)
				}
			}
		}
		cold[proxies] = float64(astray) / float64(sum)
		t.Logf("%d proxies: %d of %d forks that came at once began cold (%.2f %%)", proxies, astray, sum, 100*cold[proxies])
		f.end()
	}
	if figures && cold[3] > cold[1]+0.01 {
		t.Errorf("%.2f %% begin cold with one proxy, %.2f %% with three", 100*cold[1], 100*cold[3])
	}
}
