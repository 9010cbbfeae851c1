// Package cluster tests several proxy processes in front of simulated engines: turns that reach any proxy, proxies that are killed,
// stopped, restarted.
package cluster
