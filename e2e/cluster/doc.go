// Package cluster tests several proxy processes in front of simulated engines: turns that reach any proxy, forks, moves under load,
// proxies that are killed, stopped and restarted, clusters that meet and are not the same, clocks that are wrong, and a network
// between the processes that loses, delays, repeats and cuts.
//
// Where all proxies have heard of all that was placed (see fleet.settle), no turn may go astray, and that is asserted. Where turns race
// with the news, who wins depends on the machine: those figures are printed, and asserted with WARMRING_FIGURES=1 on a machine that
// has nothing else to do. WARMRING_E2E_RACE=1 runs binaries that look for data races.
package cluster
