//go:build !race

package gossip

const raced = false
