package gossip

import "testing"

func TestTheShapeOfAStreamIsKnownAsSoonAsItCanBe(t *testing.T) {
	for _, c := range []struct {
		what   string
		b      []byte
		secret bool
		want   verdict
	}{
		{"a state of three members", labelled("c", stateHeader(3, 1000)), false, pass},
		{"one of the most", labelled("c", stateHeader(maxNodes, maxStream)), false, pass},
		{"one member more", labelled("c", stateHeader(maxNodes+1, 0)), false, refuse},
		{"a byte more", labelled("c", stateHeader(1, maxStream+1)), false, refuse},
		{"a message", labelled("c", messageHeader(500)), false, pass},
		{"a great one", labelled("c", messageHeader(maxStream+1)), false, refuse},
		{"a probe", labelled("c", []byte{0, 0x82}), false, pass},
		{"something compressed", labelled("c", []byte{9, 1}), false, refuse},
		{"in clear where there are keys", labelled("c", []byte{9, 1}), true, pass},
		{"encrypted", labelled("c", []byte{10, 0, 0, 1, 0}), true, pass},
		{"much of it", labelled("c", []byte{10, 0x7f, 0, 1, 0}), true, refuse},
		{"without a label", stateHeader(maxNodes+1, 0), false, refuse},
	} {
		if got := streamShape(c.b, c.secret); got != c.want {
			t.Errorf("%s: %d, not %d", c.what, got, c.want)
		}
		for n := range len(c.b) { // what is judged early is not judged otherwise later
			if got := streamShape(c.b[:n], c.secret); got != more && got != c.want {
				t.Errorf("%s, the first %d bytes: %d, not %d", c.what, n, got, c.want)
			}
		}
	}
}

func FuzzShape(f *testing.F) {
	f.Add(labelled("c", stateHeader(3, 1000)))
	f.Add([]byte{7, 2, 0, 1, 0, 2, 8, 9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		last := more
		for n := range min(len(b), maxHead) + 1 {
			v := streamShape(b[:n], false)
			if last != more && v != last {
				t.Fatalf("%d bytes are judged %d, one less %d", n, v, last)
			}
			last = v
		}
		packetShape(b, 0)
	})
}
