package prompt

import "math"

// Scan reads the body's spans. It replaces everything p said before, never panics, and does not allocate once p has seen
// bodies of this size. Fingerprint must follow before the chain is read.
func (p *Prompt) Scan(body []byte, family Family) {
	p.reset(family)
	s := scanner{body: body, p: p}
	if len(body) > math.MaxInt32 {
		p.Fallback = whySize
		return
	}
	s.document()
	p.scanned(s.why)
}

// scanned sums up what the scanner has found, or why it stopped.
func (p *Prompt) scanned(why string) {
	for _, n := range p.limits {
		if n > 0 {
			p.MaxTokens = n
			break
		}
	}
	p.BypassesCache = p.reuse.none(p.Family)
	switch {
	case why != "":
		p.Fallback = why
		p.Open, p.EmptyObject = 0, false
	case p.Family == None:
		p.Fallback = whyFamily
	case len(p.tools)+len(p.functions)+len(p.system)+len(p.turns) == 0:
		p.Fallback = whyPrompt
	}
}

// document walks the outermost object.
func (s *scanner) document() {
	b := s.body
	i := 0
	if len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF { // a byte order mark
		i = 3
	}
	i = s.space(i)
	if i == len(b) {
		s.fail(whyEmpty)
		return
	}
	if b[i] != '{' {
		s.fail(whyNotObject)
		return
	}
	s.p.Open = i + 1
	i, more := s.first(i, '}')
	s.p.EmptyObject = !more
	s.members(i, more)
}

// members walks the outermost object's members from the one at i.
func (s *scanner) members(i int, more bool) {
	b := s.body
	for ; more; i, more = s.next(i, '}') {
		ks, ke, v := s.key(i)
		if v < 0 {
			return
		}
		if escaped(b[ks:ke]) {
			s.fail(whyKey)
			return
		}
		if i = s.top(b[ks:ke], v); i < 0 {
			return
		}
	}
	if i < 0 {
		return
	}
	if i = s.space(i); i != len(b) {
		s.fail(whyTrailing)
	}
}

// top passes the value at v of the outermost member key, and notes what it says. A repeated key replaces what the earlier
// one said, as Python's reader has it; null says nothing, which also replaces.
func (s *scanner) top(key []byte, v int) (i int) {
	p, b := s.p, s.body
	switch string(key) {
	case "model":
		p.Model = Span{}
		if i = s.value(v, 1); i > v+2 && b[v] == '"' {
			p.Model = Span{v + 1, i - 1}
		}
		return i
	case "stream":
		p.Stream = b[v] == 't'
	case "stream_options":
		p.StreamOptions, p.IncludeUsage = Span{}, false
		if b[v] == '{' {
			if i = s.fields(v, "stream_options"); i > 0 {
				p.StreamOptions = Span{v, i}
			}
			return i
		}
		if b[v] == 'n' {
			if i = s.value(v, 1); i > 0 {
				p.StreamOptions = Span{v, i} // null says nothing, but it stands where a value could
			}
			return i
		}
	case "max_completion_tokens":
		return s.limit(v, 0)
	case "max_output_tokens":
		return s.limit(v, 1)
	case "max_tokens":
		return s.limit(v, 2)
	case "cache_salt":
		p.salt = Span{}
		if i = s.identity(key, v); i > 0 && b[v] != 'n' {
			p.salt = Span{v, i}
		}
		return i
	case "tools":
		if p.Family != Completions {
			s.restarted(p.tools)
			if p.tools = p.tools[:0]; b[v] == '[' {
				p.tools, i = s.list(v, p.tools, ordinary)
				return i
			}
		}
	case "functions":
		if p.Family == Chat {
			s.restarted(p.functions)
			if p.functions = p.functions[:0]; b[v] == '[' {
				p.functions, i = s.list(v, p.functions, ordinary)
				return i
			}
		}
	case "system", "instructions":
		if (p.Family == Messages && len(key) == 6) || (p.Family == Responses && len(key) == 12) {
			s.restarted(p.system)
			if p.system = p.system[:0]; b[v] != 'n' {
				p.system, i = s.systemPart(v, p.system, p.Family == Messages)
				return i
			}
		}
	case "messages":
		if p.Family == Chat || p.Family == Messages {
			s.restarted(p.turns)
			if p.turns = p.turns[:0]; b[v] == '[' {
				s.enter()
				p.turns, i = s.list(v, p.turns, message)
				s.leave(i)
				return i
			}
		}
	case "input":
		if p.Family == Responses {
			s.restarted(p.turns)
			switch p.turns = p.turns[:0]; b[v] {
			case '[':
				s.enter()
				p.turns, i = s.list(v, p.turns, item)
				s.leave(i)
				return i
			case '"':
				pt := s.open(v)
				if i = s.str(v); i > 0 {
					pt = s.close(pt, i)
					pt.role, pt.bare = roleUser, true
					p.turns = append(p.turns, pt)
				}
				return i
			}
		}
	case "prompt":
		if p.Family == Completions {
			p.turns, i = s.promptParts(v, p.turns[:0])
			return i
		}
	default:
		p.reuse.say(key, b[v])
		return s.identity(key, v)
	}
	return s.value(v, 1)
}

// limit notes a limit on the output; anything but a whole number of at most nine digits is unknown.
func (s *scanner) limit(v, which int) int {
	s.p.limits[which] = 0
	i := s.value(v, 1)
	if i < 0 || i-v > 9 {
		return i
	}
	n := 0
	for _, c := range s.body[v:i] {
		if c-'0' >= 10 {
			return i
		}
		n = n*10 + int(c-'0')
	}
	s.p.limits[which] = n
	return i
}
