// Package demo is the demo command: simulated engines, a real proxy and simulated agents in one process, talking HTTP over
// the loopback interface in real time. The same traffic goes through plain round robin first and through warmring then, each
// time to engines with empty caches, and the two are compared with each other and with what an endless cache would do.
//
// The engines compute no language: their scheduler and their cache behave like vLLM's, their speed and their memory are
// chosen so that the traffic is as tight on them as in real fleets and the whole takes about half a minute. The numbers of
// the comparison come from the engines' own counters and the agents' clocks, not from the proxy.
package demo
