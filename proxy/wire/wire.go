// Package wire knows the four API families as they travel: which path belongs to which family, what the events of
// a stream mean, where usage and response ids stand, and what an error looks like to each family's clients.
//
// It works on passing bytes and never changes them (UsageFilter alone takes one known chunk out). There is no I/O,
// no clock and no goroutine; nothing is decoded that need not be: events are judged by a byte scan. A stream
// needs at most 16 KB for sniffing however long its events are; what is longer is searched in a sliding window.
//
// The rules were read off answers of vLLM 0.32.0, SGLang 0.5.23 and llama.cpp (see testdata/README.md).
package wire
