//go:build !purego

package prompt

import "golang.org/x/sys/cpu"

// quoteAVX2 is quote over the blocks of 32 bytes that fit in n bytes at p, without parity: see quote_amd64.s.
//
//go:noescape
func quoteAVX2(p *byte, n int) int

// quote returns the offset of the first quote at or behind i that may end a string, or a negative number when there is
// none: it passes escaped quotes where that costs nothing, and the caller checks the backslashes before what it returns.
// b[i-1] is a quote.
//
// Source code in JSON has an escaped quote every 30 bytes. Stopping at each costs a mispredicted branch, more than all
// else in a scan together; 32 bytes at a time, without branches, halves the scan.
func quote(b []byte, i int) int {
	if cpu.X86.HasAVX2 && i < len(b) {
		n := quoteAVX2(&b[i], len(b)-i)
		if n >= 0 {
			return i + n
		}
		i += ^n
	}
	return quoteGeneric(b, i)
}
