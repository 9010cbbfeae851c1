// Package gossip carries ring facts between proxies: where sessions live, what is charged to engines, which engines an operator
// has drained or somebody has seen fail, and requests to take a long prefill back.
//
// Placements are entries of a last-writer-wins map (Book) that spreads by memberlist's gossip and, as it must be quick, straight
// to every member; loads and requests go straight to members only. Order, repetition and loss do not matter: entries are
// versioned, all of them expire, nothing needs a tombstone, and what is missing is found by comparing hashes now and then.
//
// Limits: 100,000 entries, 30 KB/s sent by each proxy (what does not fit is shed by worth and counted), messages of 1,300
// bytes by packet and 4 MB by stream. Members are trusted: whoever has the key can place sessions. DESIGN.md has the ideas.
package gossip
