// Package engines knows WHAT an inference server is: where it stands, what kind it is, whether it is well, which models it serves and how much KV cache it has.
//
// A Fleet is a fixed list of Engines. Each Engine is one base URL with a small state machine, fed by two sources: probes, which the fleet sends on its own, and reports of what requests met.
// Nothing here places requests. Limits: one goroutine per engine; answers of probes are read up to 4 MiB (metrics) and 1 MiB (all others); at most 1,024 models per engine.
// The ideas and the failures they survive are in DESIGN.md beside this file.
package engines
