package gossip

import "testing"

func TestKeysAreRotatedWithoutAGap(t *testing.T) {
	t.Parallel()
	old, fresh := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	all := startCluster(t, 3, engineNames(2), func(_ int, o *Options) { o.Keys = [][]byte{old} })
	session := uint64(0)
	check := func(when string) {
		session++
		d := all[session%3].place(t, session)
		for _, p := range all {
			eventually(t, "news "+when, func() bool { return p.knows(session) == d.Engine })
		}
	}
	for _, step := range [][][]byte{{old, fresh}, {fresh, old}, {fresh}} {
		for _, p := range all {
			if err := p.SetKeys(step); err != nil {
				t.Fatal(err)
			}
			check("while keys change")
		}
	}
}
