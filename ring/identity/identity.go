// Package identity tells whose turn a request is: the session's key, its parent's, and the answer it goes on from, read
// from whatever the client sends by itself.
//
// A Rules is a compiled list of sources, tried in order; the first that yields an id wins. Keys are 64-bit hashes of
// (scope, whole id): one id has one key through whichever source it came, so a parent's key is the parent's own session
// key. An empty id is no id. Request ids, trace ids, credentials, cookies and connections are never ids.
package identity

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"github.com/warmring/warmring/ring/prompt"
)

// Identity is what a request says about itself. Keys that are 0 are unknown.
type Identity struct {
	Session          uint64 // the session that this turn belongs to
	Parent           uint64 // the session that spawned it, or that it was forked from; never equal to Session
	Source           string // the entry of the sources list that gave Session; "" when none did
	PreviousResponse uint64 // key of the response id that the turn goes on from; look it up among the ids answered lately
}

// Rules is a compiled list of sources. It is immutable and safe for concurrent use.
type Rules struct {
	rules    []rule
	previous bool // previous_response_id is among the sources
}

// Key returns the key of an id within a scope, 0 when the id is none: empty, blank, or what a client writes that has no id
// to fill in. Ids of any length are hashed whole.
func Key(scope uint64, id []byte) uint64 { return key(scope, id, nil) }

// key is Key for an id within another: an agent within a session. Neither part may be empty but the second.
func key(scope uint64, id, within []byte) uint64 {
	id = clean(id)
	if id == nil {
		return 0
	}
	var d xxhash.Digest
	d.ResetWithSeed(scope)
	d.Write(id)
	if within != nil {
		d.WriteString("\x00")
		d.Write(within)
	}
	return max(d.Sum64(), 1)
}

// clean returns the id without white space around it, nil when that leaves none.
func clean(id []byte) []byte {
	id = bytes.TrimSpace(id)
	switch string(id) {
	case "", "null", "undefined", "None":
		return nil
	}
	return id
}

// Identify reads a request. header returns the value of the header with that lower-case name, nil or empty when there is
// none; p has scanned body. scope separates tenants (and models, where the caller wants that).
func (r *Rules) Identify(header func(name string) []byte, body []byte, p *prompt.Prompt, scope uint64) Identity {
	q := request{header: header, body: body, p: p, scope: scope}
	var id Identity
	var orphan uint64 // the first parent that came without a session
	for i := range r.rules {
		rule := &r.rules[i]
		if id.Session == 0 {
			session, parent := q.read(rule)
			switch {
			case session != 0:
				id.Session, id.Parent, id.Source = session, parent, rule.source
			case orphan == 0:
				orphan = parent
			}
			continue
		}
		if id.Parent != 0 && id.Parent != id.Session {
			break
		}
		// Another source may know the parent: several benchmark clients send one id under many names, and only one
		// of these has a name for the parent.
		if rule.pair() {
			if session, parent := q.read(rule); session == id.Session {
				id.Parent = parent
			}
		}
	}
	if id.Parent == 0 {
		id.Parent = orphan
	}
	if id.Parent == id.Session {
		id.Parent = 0
	}
	if r.previous {
		id.PreviousResponse = Key(scope, q.field("previous_response_id"))
	}
	return id
}
