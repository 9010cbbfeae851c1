//go:build !amd64 || purego

package prompt

// quote returns the offset of the first quote at or behind i that may end a string, or a negative number when there is
// none. The caller checks the backslashes before it.
func quote(b []byte, i int) int { return quoteGeneric(b, i) }
