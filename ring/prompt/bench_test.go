package prompt

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkScanAndFingerprint(b *testing.B) {
	for _, c := range []struct{ size, messages, tools int }{{2 << 10, 6, 0}, {220 << 10, 70, 30}, {400 << 10, 160, 30}, {450 << 10, 160, 30}} {
		body := agentBody(c.size, c.messages, c.tools)
		seed := Seed(1, []byte("tiny"))
		var p Prompt
		p.Scan(body, Chat)
		if p.Fallback != "" {
			b.Fatal("the body was not understood: ", p.Fallback)
		}
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/%dKB", name, c.size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				least := time.Hour
				for b.Loop() {
					start := time.Now()
					f()
					least = min(least, time.Since(start))
				}
				b.ReportMetric(float64(least), "min-ns/op") // the figure to compare on a machine that is not quiet
			})
		}
		run("scan", func() { p.Scan(body, Chat) })
		run("fingerprint", func() { p.Fingerprint(body, seed) })
		run("both", func() { p.Scan(body, Chat); p.Fingerprint(body, seed) })
	}
}
