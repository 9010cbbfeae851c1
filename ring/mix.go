package ring

import "math/bits"

// mix spreads a 64-bit value over all bits (the finalizer of splitmix64). Session keys and fingerprints come from
// elsewhere and may differ in few bits; the ring and the tables need all of them.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// join makes one key of two, order matters.
func join(a, b uint64) uint64 { return mix(a ^ bits.RotateLeft64(mix(b+0x9e3779b97f4a7c15), 32)) }
