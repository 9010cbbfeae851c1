package prompt

// facts is what Scan learns of a body besides its parts.
type facts struct {
	model, options, salt     Span
	stream, usage            bool
	limits                   [3]int
	reuse                    reuse
	fields                   [maxFacts]Field
	n                        int // fields
	tools, functions, system int // how many parts were known
}

// maxFacts bounds the identity fields of a body that is remembered.
const maxFacts = 6

// note takes p's facts down. It returns false if they are too many.
func (f *facts) note(p *Prompt) bool {
	*f = facts{
		model: p.Model, options: p.StreamOptions, salt: p.salt, stream: p.Stream, usage: p.IncludeUsage, limits: p.limits, reuse: p.reuse,
		tools: len(p.tools), functions: len(p.functions), system: len(p.system), n: len(p.Fields),
	}
	return copy(f.fields[:], p.Fields) == len(p.Fields)
}

// tell puts the facts back into p. What they point to at or behind from has moved on by by bytes.
func (f *facts) tell(p *Prompt, from, by int) {
	p.Model, p.StreamOptions, p.salt = moved(f.model, from, by), moved(f.options, from, by), moved(f.salt, from, by)
	p.Stream, p.IncludeUsage, p.limits, p.reuse = f.stream, f.usage, f.limits, f.reuse
	p.Fields = append(p.Fields[:0], f.fields[:f.n]...)
	for i := range p.Fields {
		p.Fields[i].Value = moved(p.Fields[i].Value, from, by)
	}
}

func moved(s Span, from, by int) Span {
	if s.Start >= from {
		s.Start += by
		s.End += by
	}
	return s
}

// trace is what a Prompt notes for its Memory while it reads a body, and what it was told by it.
type trace struct {
	m      *Memory  // nil: nothing is to be learned
	blocks []uint64 // hashes of the body through each whole block

	entered, finished facts
	inside            bool // the list of messages has begun
	off               bool // this body is none to remember
	behind            int  // where the list of messages had ended; 0 before
	cuts              int  // how many there were then
	marked            int  // offset of the first cache_control in the list: it moves from turn to turn
	keep              int  // so many turns are remembered
	scope             uint64
	past              past

	known         bool   // a memo was found:
	block, prefix uint64 // its name
	end           int    // where it ended
	tailed        bool   // and this body's tail is the remembered one:
	tail          uint64 // its hash
	at, from      int    // where it begins, and where it began
	told          facts  // what was known behind it
	tailCuts      []cut
	cutsBehind    int // how many there were before those
}

// Recall is Scan with a memory, from which Fingerprint, which must follow, profits too. With a nil memory it is Scan.
func (p *Prompt) Recall(m *Memory, body []byte, family Family) {
	if m == nil || len(body) < leastBlocks*m.block || len(body) > 1<<30 || family == None || family == Completions {
		p.Scan(body, family)
		return
	}
	p.reset(family)
	t := &p.trace
	t.m = m
	h := uint64(0)
	for at := m.block; at <= len(body); at += m.block {
		h = m.hash(h, body[at-m.block:at])
		t.blocks = append(t.blocks, h)
	}
	s := scanner{body: body, p: p}
	found := m.find(p, body)
	if found && !s.goOn() {
		// Its tail looks the same but does not begin where the messages end.
		blocks := t.blocks
		p.reset(family)
		t.m, t.blocks = m, blocks
		s = scanner{body: body, p: p}
		found = false
	}
	if found {
		m.hits.Add(1)
	} else {
		m.misses.Add(1)
		s.document()
	}
	p.scanned(s.why)
	if t.known && (t.off || !t.tailed && (len(p.tools) != t.entered.tools || len(p.functions) != t.entered.functions || len(p.system) != t.entered.system)) {
		t.past = past{} // the chain begins with parts that this tail has, or consists of others
	}
	p.rememberable(body)
}

// restore puts into p what e says of a body that begins as e's did, and whose tail, from at on, is e's if same is true.
func (p *Prompt) restore(e *memo, at int, same bool) {
	t := &p.trace
	t.known, t.block, t.prefix, t.end = true, e.block, e.prefix, e.end
	t.entered, t.inside = e.entered, true
	t.past = e.past
	p.Open = e.open
	e.entered.tell(p, 0, 0)
	tools, functions, system := e.entered.tools, e.entered.functions, e.entered.system
	if same {
		t.tailed, t.tail, t.at, t.from, t.told = true, e.tail, at, e.behind, e.finished
		t.tailCuts, t.cutsBehind = append(t.tailCuts[:0], e.tailCuts...), e.cutsBehind
		tools, functions, system = len(e.tools), len(e.functions), len(e.system)
	}
	p.tools = append(p.tools[:0], e.tools[:tools]...)
	p.functions = append(p.functions[:0], e.functions[:functions]...)
	p.system = append(p.system[:0], e.system[:system]...)
	p.turns = append(p.turns[:0], e.turns...)
	p.cuts = append(p.cuts[:0], e.cuts...)
	p.Chain = append(p.Chain[:0], e.chain...)
	if !same && (len(e.tools) != tools || len(e.functions) != functions || len(e.system) != system) {
		t.past = past{} // the chain began with parts of another tail
	}
}

// goOn scans what follows the memo's end. It returns false if the memo's tail is not this body's after all.
func (s *scanner) goOn() bool {
	p := s.p
	t := &p.trace
	kind := message
	if p.Family == Responses {
		kind = item
	}
	var i int
	i, more := s.next(t.end, ']')
	p.turns, i = s.elements(i, more, p.turns, kind)
	s.leave(i)
	if !t.tailed {
		if i > 0 {
			i, more = s.next(i, '}')
			s.members(i, more)
		}
		return true
	}
	if i != t.at {
		return false
	}
	by := t.at - t.from
	t.told.tell(p, t.from, by)
	cuts := len(p.cuts) - t.cutsBehind
	for _, list := range [3][]part{p.tools, p.functions, p.system} {
		for j := range list {
			if pt := &list[j]; int(pt.start) >= t.from {
				pt.start, pt.end = uint32(int(pt.start)+by), uint32(int(pt.end)+by)
				pt.cuts, pt.cutEnd = uint32(int(pt.cuts)+cuts), uint32(int(pt.cutEnd)+cuts)
			}
		}
	}
	for _, c := range t.tailCuts {
		p.cuts = append(p.cuts, cut{uint32(int(c.start) + by), uint32(int(c.end) + by)})
	}
	return true
}

// enter notes that the list of messages begins.
func (s *scanner) enter() {
	t := &s.p.trace
	if t.m == nil {
		return
	}
	if t.inside || !t.entered.note(s.p) {
		t.off = true
	}
	t.inside = true
}

// leave notes that the list of messages ends before i.
func (s *scanner) leave(i int) {
	if t := &s.p.trace; t.m != nil && i > 0 {
		t.behind, t.cuts = i, len(s.p.cuts)
	}
}

// restarted notes that a list of parts is begun anew: a body that says it twice is not remembered.
func (s *scanner) restarted(list []part) {
	if len(list) > 0 {
		s.p.trace.off = true
	}
}

// rememberable decides how many turns of the body that was scanned are to be remembered: those before the first moving
// cache_control, if the head of the prompt and its first user message are among them.
func (p *Prompt) rememberable(body []byte) {
	t := &p.trace
	if p.Fallback != "" || t.off || t.behind == 0 || len(p.marks) > 0 || !t.finished.note(p) {
		return
	}
	k := len(p.turns)
	for t.marked > 0 && k > 0 && int(p.turns[k-1].end) > t.marked {
		k--
	}
	user, other := false, false
	for i := range p.turns[:k] {
		user = user || p.turns[i].role == roleUser
		other = other || p.turns[i].role != roleHead
	}
	// A message that is no object may go on in another body.
	if user && other && int(p.turns[k-1].end) >= leastBlocks*t.m.block && body[p.turns[k-1].end-1] == '}' {
		t.keep = k
	}
}
