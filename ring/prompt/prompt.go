// Package prompt reads one request body and tells what its prompt is: model, stream flags, identity fields, and a chain of
// fingerprints over the canonical prompt in the order in which an engine renders it.
//
// Two passes over the raw bytes, nothing decoded: Scan finds the spans of the prompt's parts and the members to leave out;
// Fingerprint feeds one running xxhash digest with what remains and reads it at part boundaries and strides.
// A body that cannot be read this way gets a chain over its raw bytes instead: a non-empty body never has an empty chain.
//
// A Memory spares the bytes that a session's turns repeat.
//
// Limits: 64 levels of nesting, 2,048 points, 1,048,576 left-out members, 2 GiB of prompt. DESIGN.md has the ideas.
package prompt

import (
	"bytes"
	"encoding/json"

	"github.com/cespare/xxhash/v2"
)

// Family is the wire format of a request body, as told by the request's path.
type Family uint8

// The families whose prompts are understood. A body of family None is scanned for its model and flags and fingerprinted raw.
const (
	None        Family = iota
	Chat               // OpenAI chat completions: tools, functions, messages
	Completions        // OpenAI completions: prompt as text, texts, token ids or lists of them
	Messages           // Anthropic messages: tools, system, messages
	Responses          // OpenAI responses: tools, instructions, input
)

// String returns the family's name in logs and labels.
func (f Family) String() string {
	switch f {
	case Chat:
		return "chat"
	case Completions:
		return "completions"
	case Messages:
		return "messages"
	case Responses:
		return "responses"
	}
	return "none"
}

// Span is a half-open byte range of the body. The zero Span means "absent".
type Span struct{ Start, End int }

// Of returns the bytes that s covers in body, which must be the scanned one.
func (s Span) Of(body []byte) []byte { return body[s.Start:s.End] }

// Point is one fingerprint of the chain.
type Point struct {
	Fingerprint uint64 // hash of the scope and the canonical prompt from its beginning through this point
	Bytes       int32  // canonical prompt bytes through this point
	Keep        bool   // worth remembering in an index; see keepGap for the rule
}

// Field is a member of the body by which a client may identify a session; fieldName lists them.
type Field struct {
	Name  string // path of the member, such as "metadata.user_id"
	Value Span   // content of the string without its quotes, escapes as sent; or the digits of a number; never empty
}

// Prompt is what one body says. The zero value is ready; Scan resets it and keeps its capacity, so a pooled Prompt does
// not allocate. It is for one goroutine at a time. It holds offsets only: the body must be passed again, unchanged, to the methods that read it.
type Prompt struct {
	Family        Family
	Fallback      string // why the chain is one of raw strides over the whole body; "" = the prompt was understood
	Model         Span   // inside the quotes; zero = absent
	Stream        bool   // the body has "stream": true
	StreamOptions Span   // the whole object; zero = absent
	IncludeUsage  bool   // stream_options.include_usage is true
	MaxTokens     int    // the output limit asked for, in tokens; 0 = unknown
	Open          int    // offset just behind the opening brace, where a member can be spliced in; 0 = not a readable object
	EmptyObject   bool   // the object has no members, so a splice at Open needs no comma
	BypassesCache bool   // the engine computes the whole prompt whatever of it is cached; as members of vLLM, SGLang, llama.cpp say
	Fields        []Field

	Chain []Point // strictly growing in Bytes, at most MaxPoints
	Head  int     // leading points of the part that unrelated sessions share: tools, system, leading system messages
	First int     // leading points through the end of the first user message; at least Head
	Bytes int     // canonical bytes of the whole prompt
	Whole uint64  // fingerprint of the whole prompt, which is the last point's

	tools, functions, system, turns []part   // in the order of the body; written in this order
	cuts                            []cut    // left-out ranges inside parts, in order
	marks                           []uint32 // offsets behind every idStride-th token id
	salt                            Span     // cache_salt's raw value
	limits                          [3]int   // max_completion_tokens, max_output_tokens, max_tokens
	reuse                           reuse
	writer                          writer
	trace                           trace
}

// MaxPoints bounds the length of a chain.
const MaxPoints = 2048

// Seed returns the scope of all fingerprints of a tenant's prompts for a model. Chains of different scopes share nothing.
func Seed(tenant uint64, model []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(tenant)
	d.Write(model)
	return d.Sum64()
}

// System returns the value of system or instructions, zero if there is none.
func (p *Prompt) System() Span {
	if len(p.system) == 0 {
		return Span{}
	}
	return Span{int(p.system[0].start), int(p.system[0].end)}
}

// ModelName returns the name of the model that the body asks for, nil when it names none. It points into body unless the
// name is written with escapes (PHP writes "org\/model"), which are decoded into a copy.
func (p *Prompt) ModelName(body []byte) []byte {
	if p.Model == (Span{}) {
		return nil
	}
	name := p.Model.Of(body)
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	var decoded string
	if err := json.Unmarshal(body[p.Model.Start-1:p.Model.End+1], &decoded); err != nil {
		return name
	}
	return []byte(decoded)
}

// Field returns the value of the named identity field, nil when the body has none.
func (p *Prompt) Field(body []byte, name string) []byte {
	for i := range p.Fields {
		if p.Fields[i].Name == name {
			return p.Fields[i].Value.Of(body)
		}
	}
	return nil
}

// keepCapacity is what a pooled Prompt retains of its working memory after a body that needed more.
const keepCapacity = 1 << 16

func (p *Prompt) reset(family Family) {
	cuts, marks, turns := p.cuts[:0], p.marks[:0], p.turns[:0]
	if cap(cuts) > keepCapacity {
		cuts = nil
	}
	if cap(marks) > keepCapacity {
		marks = nil
	}
	if cap(turns) > keepCapacity {
		turns = nil
	}
	tools, functions := p.tools[:0], p.functions[:0]
	if cap(tools)+cap(functions) > keepCapacity {
		tools, functions = nil, nil
	}
	w := p.writer
	blocks, tailCuts := p.trace.blocks[:0], p.trace.tailCuts[:0]
	*p = Prompt{
		Family: family, Fields: p.Fields[:0], Chain: p.Chain[:0],
		tools: tools, functions: functions, system: p.system[:0], turns: turns, cuts: cuts, marks: marks,
	}
	p.writer = w
	p.trace.blocks, p.trace.tailCuts = blocks, tailCuts
}
