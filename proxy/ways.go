package proxy

import (
	"strings"
	"time"

	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy/lane"
)

// laneFacts is what is known of the placed engine's speed and ways to stop.
func (r *request) laneFacts() lane.Facts {
	up := r.up
	kind := up.DetectedKind()
	return lane.Facts{
		PrefillRate: r.charge.PrefillRate(), CanPreempt: up.canPreempt(), Slices: up.canSlice(), Kept: up.kept.share(time.Now()),
		KeepsStep: kind == engines.VLLM || up.llamaCPP(), UnseenAborts: kind == engines.VLLM || up.llamaCPP(), FreezesDecodes: kind == engines.SGLang,
	}
}

// arrival is what the lanes must know of the request.
func (r *request) arrival() lane.Arrival {
	d, p := &r.decision, &r.scratch.prompt
	fresh := max(d.Prompt-d.Warm, 0)
	if r.bypasses {
		fresh = d.Prompt // and neither slices nor earlier runs would be found again
	}
	return lane.Arrival{
		ID: r.lane.id, Tenant: r.tenant, Fresh: fresh, Context: d.Prompt, Unstreamed: !r.stream, Bytes: len(r.body),
		NoPreempt: r.bypasses || r.up.DetectedKind() == engines.SGLang && !r.canBeNamed(),
		NoSlices:  r.bypasses || r.lane.whole || p.Open == 0 || p.Fallback != "" || r.scratch.turn.Continues || len(r.body) > maxSliced,
	}
}

// maxSliced bounds the bodies that are sent in slices, each of which carries the whole prefix again. A million tokens of
// text have less; what is larger is mostly images, which cannot be cut.
const maxSliced = 8 << 20

// canBeNamed tells whether the body has a place for a name by which SGLang stops a request at once. A name of the client's
// own may be the beginning of another's, which would be stopped as well.
func (r *request) canBeNamed() bool {
	p := &r.scratch.prompt
	if p.Open == 0 || p.EmptyObject {
		return false
	}
	for i := range p.Fields {
		if p.Fields[i].Name == "rid" {
			return false
		}
	}
	return true
}

// canPreempt tells whether the engine stops at once when told and keeps what it
// has computed: the operator's word, else what is known of its kind.
func (up *upstream) canPreempt() bool {
	switch up.preempt {
	case "yes":
		return true
	case "no":
		return false
	}
	switch up.DetectedKind() {
	case engines.VLLM:
		return true
	case engines.SGLang:
		return !up.noAbort.Load()
	}
	// llama.cpp looks for closed connections once a second and stops only between batches, which take seconds on a slow
	// machine. Nothing tells when it has; a request that is sent again too soon would live twice. So it is held back only.
	return false
}

// canSlice tells whether the engine can be sent prefixes, which it must keep and which must cost nothing but its time: the
// operator's word, else what is known of its kind. One of a kind that nobody knows may be a service that bills each token, or may
// keep nothing: it has to tell of cached tokens first.
func (up *upstream) canSlice() bool {
	switch up.preempt {
	case "yes":
		return true
	case "no":
		return false
	}
	switch up.DetectedKind() {
	case engines.VLLM, engines.SGLang:
		return true
	}
	return up.llamaCPP() || up.caches.Load()
}

// llamaCPP tells whether the engine is a llama.cpp server, which stops between two batches and keeps all of them.
func (up *upstream) llamaCPP() bool { return strings.HasPrefix(up.Facts().Version, "llama.cpp") }
