package gossip

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/warmring/warmring/ring"
)

// Digests and speeds as they travel. Unknown numbers are 0, known ones one more, where 0 is a number that can be.

func appendDigests(b []byte, list []Digest) []byte {
	le := binary.LittleEndian
	for i := range list {
		d := &list[i]
		b = append(b, 0)
		start := len(b)
		b = le.AppendUint32(le.AppendUint32(b, d.Engine), d.Reader)
		b = binary.AppendUvarint(b, uint64(max(d.Age, 0)/lifeUnit))
		for _, n := range [...]int{d.Running, d.Waiting, d.Usage} {
			b = binary.AppendUvarint(b, uint64(max(n, -1)+1))
		}
		b = binary.AppendUvarint(b, uint64(max(d.KVTokens, 0)))
		b = binary.AppendUvarint(b, uint64(max(d.Start, 0)))
		b = binary.AppendUvarint(b, uint64(max(d.Work, -1)+1))
		b = append(b, d.Source)
		b = le.AppendUint32(b, d.Models)
		b[start-1] = byte(len(b) - start)
	}
	return b
}

func readDigest(r *reader) (Digest, bool) {
	d := Digest{Engine: r.uint32(), Reader: r.uint32()}
	d.Age = time.Duration(min(r.uvarint(), uint64(time.Hour/lifeUnit))) * lifeUnit
	for _, to := range [...]*int{&d.Running, &d.Waiting, &d.Usage} {
		*to = int(min(r.uvarint(), math.MaxInt32)) - 1
	}
	d.KVTokens, d.Start, d.Work = r.int63(), r.int63(), r.int63()-1
	d.Source, d.Models = r.byte(), r.uint32()
	return d, true
}

func appendSpeeds(b []byte, list []ring.Speed) []byte {
	for _, s := range list {
		b = append(b, 0)
		start := len(b)
		b = binary.LittleEndian.AppendUint32(b, s.Engine)
		b = binary.AppendUvarint(b, uint64(max(s.PerSecond, 0)))
		b[start-1] = byte(len(b) - start)
	}
	return b
}

func readSpeed(r *reader) (ring.Speed, bool) {
	return ring.Speed{Engine: r.uint32(), PerSecond: int(min(r.uvarint(), math.MaxInt32))}, true
}
